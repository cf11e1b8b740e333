"""The JSON interface: answers as the model gives them, limits, and bodies that mean harm."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from readers import TASKS, reader
from starlette.testclient import TestClient

from rss_rl.data.store import Prepared
from rss_rl.inference.model import Model
from rss_rl.serving.app import make_app
from rss_rl.serving.payloads import Limits, Pending, answer_examples

SMALL = Limits(body_bytes=4000, examples=3, words=20, wait_s=0.3, waiting=2)
TEXT = TASKS["classes"][2][0]


def client_of(model: Model, limits: Limits = SMALL, **more: Any) -> TestClient:
    app = make_app(model, "run", limits=limits, **more)
    return TestClient(app, base_url="http://127.0.0.1:8000")


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    with client_of(reader("classes", seed=3)) as made:
        yield made


def ask(client: TestClient, *texts: str, **more: Any) -> Any:
    answer = client.post("/predict", json={"examples": [{"texts": list(texts), **more}]})
    assert answer.status_code == 200, answer.text
    (found,) = answer.json()["examples"]
    return dict(found)


def kept(found: Any) -> list[list[bool]]:
    return [[word["head"] or word["dependent"] for word in words] for words in found["sentences"]]


@pytest.mark.parametrize("task", TASKS)
def test_it_answers_what_the_model_says(task: str) -> None:
    model = reader(task, seed=3)
    with client_of(model) as client:
        found = ask(client, *TASKS[task][2])
    (said,) = model.read([model.encode(TASKS[task][2])])
    assert found == json.loads(json.dumps(said.to_dict()))


@pytest.mark.parametrize("task", TASKS)
def test_a_share_and_the_very_words(task: str) -> None:
    with client_of(reader(task, seed=3)) as client:
        texts = TASKS[task][2]
        for share in (0.01, 0.5, 1):
            found = ask(client, *texts, share=share)
            wanted = [max(1, round(share * len(words))) for words in found["sentences"]]
            assert [sum(words) for words in kept(found)] == wanted
        opposite = [[not bit for bit in bits] for bits in kept(ask(client, *texts))]
        found = ask(client, *texts, keep=opposite)
        assert kept(found) == opposite
        words = [word for sentence in found["sentences"] for word in sentence]
        assert found["kept"] == pytest.approx(sum(map(sum, opposite)) / len(words))


def test_the_model_is_described(client: TestClient) -> None:
    shown = client.get("/model").json()
    assert (shown["name"], shown["texts"], shown["selects"]) == ("run", ["Text"], True)
    assert "trained on 7 rows of made" in shown["about"]
    assert shown["examples"] == []  # its data are not here


def test_examples_are_those_of_dev_for_people_on_this_machine(tiny: Prepared) -> None:
    model = reader("pair")
    model.config = model.config.model_copy(update={"data": str(tiny.folder)})
    with client_of(model) as client:
        assert client.get("/model").json()["examples"] == []  # the model's are others
    model.inputs = tiny
    with client_of(model) as client:
        shown = client.get("/model").json()["examples"]
    assert shown == [[" ".join(t) for t in tiny.split("dev").words(row)] for row in range(3)]
    with client_of(model, token="t") as client:
        answer = client.get("/model", headers={"Authorization": "Bearer t"})
    assert answer.json()["examples"] == []


@pytest.mark.parametrize(
    ("example", "field", "said"),
    [
        ({}, "examples.0.texts", "required"),
        ({"texts": [7]}, "examples.0.texts.0", "string"),
        ({"texts": [" \n"]}, "examples.0.texts", "no word"),
        ({"texts": ["w3", "w4"]}, "examples.0.texts", "2 text(s) where the task has 1"),
        ({"texts": ["w3"], "share": 1.5}, "examples.0.share", "less than or equal to 1"),
        ({"texts": ["w3 w4"], "keep": [[True]]}, "examples.0.keep.0", "1 values for 2 words"),
        ({"texts": ["w3"], "keep": [[True], []]}, "examples.0.keep", "2 lists for 1 text"),
        ({"texts": ["w3"], "keep": [[True]], "share": 1}, "examples.0", "either share or keep"),
        ({"texts": ["w3"], "shares": 1}, "examples.0.shares", "not permitted"),
    ],
)
def test_a_wrong_field_is_named(
    client: TestClient, example: dict[str, Any], field: str, said: str
) -> None:
    answer = client.post("/predict", json={"examples": [example]})
    assert (answer.status_code, answer.json()["field"]) == (422, field)
    assert said in answer.json()["error"]


def test_without_a_policy_words_can_be_named_only() -> None:
    with client_of(reader("classes", selects=False)) as client:
        body = {"examples": [{"texts": ["w3 w4"], "share": 0.5}]}
        answer = client.post("/predict", json=body)
        assert (answer.status_code, answer.json()["field"]) == (422, "examples.0.share")
        assert "no policy" in answer.json()["error"]
        assert kept(ask(client, "w3 w4", keep=[[True, False]])) == [[True, False]]


def test_more_than_the_limits_is_413(client: TestClient) -> None:
    for body, field in (
        ({"examples": [{"texts": ["w3 " * 21]}]}, "examples.0.texts.0"),
        ({"examples": [{"texts": ["x" * 401]}]}, "examples.0.texts.0"),
        ({"examples": [{"texts": ["w3"]}] * 4}, "examples"),
        ({"examples": [{"texts": ["w3 " * 2000]}]}, ""),
    ):
        answer = client.post("/predict", json=body)
        assert (answer.status_code, answer.json()["field"]) == (413, field)
    ask(client, "w3 " * 20)


ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)
NEARLY = st.fixed_dictionaries(
    {"examples": st.lists(st.fixed_dictionaries({"texts": st.lists(st.text())}), max_size=3)},
    optional={"run": ANY_JSON, "share": ANY_JSON},
) | st.fixed_dictionaries(
    {
        "examples": st.lists(
            st.fixed_dictionaries(
                {"texts": st.lists(st.text(), max_size=2)},
                optional={"share": ANY_JSON, "keep": ANY_JSON | st.lists(st.lists(st.booleans()))},
            )
        )
    }
)


@given(st.binary() | (ANY_JSON | NEARLY).map(lambda data: json.dumps(data).encode()))
def test_no_body_is_a_fault(client: TestClient, body: bytes) -> None:
    answer = client.post("/predict", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code in (200, 413, 422)
    if answer.status_code != 200:
        assert answer.json()["error"]
        assert "Traceback" not in answer.text


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 3000,
        b'{"examples":' * 300,
        b'{"examples": [{"texts": ["\\ud800"]}]}',
        b"\xff\xfe",
        b"",
    ],
)
def test_hostile_bodies_are_422(client: TestClient, body: bytes) -> None:
    answer = client.post("/predict", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == 422
    assert len(answer.content) < 500


def test_a_body_that_does_not_arrive_is_408() -> None:
    """And whoever goes away while sending is no fault."""
    app = make_app(reader("classes"), "run", limits=SMALL)
    scope = {"type": "http", "method": "POST", "path": "/predict", "query_string": b""}
    headers = [(b"host", b"localhost"), (b"content-type", b"application/json")]
    sent: list[Any] = []

    async def never() -> Any:
        await anyio.sleep_forever()

    async def gone() -> Any:
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)

    for receive, status in ((never, 408), (gone, 400)):
        sent.clear()
        anyio.run(app, {**scope, "headers": headers}, receive, send)
        assert sent[0]["status"] == status


class TestFaults:
    def test_one_is_answered_at_a_time_and_health_meanwhile(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        go, begun, running, most = threading.Event(), threading.Event(), 0, 0

        def slow(_: object, together: Sequence[Pending], __: object) -> None:
            nonlocal running, most
            running += 1
            most = max(most, running)
            begun.set()
            assert go.wait(30)
            running -= 1
            for one in together:
                one.outcome = {}

        monkeypatch.setattr("rss_rl.serving.app.answer_examples", slow)
        body = {"examples": [{"texts": [TEXT]}]}
        with (
            client_of(reader("classes")) as client,
            ThreadPoolExecutor(8) as pool,
        ):

            def post() -> int:
                return client.post("/predict", json=body).status_code

            first = pool.submit(post)
            assert begun.wait(30)
            start = time.monotonic()
            others = [pool.submit(post) for _ in range(4)]
            assert client.get("/health").json() == {"status": "ok"}
            assert [other.result(30) for other in others] == [503] * 4
            assert time.monotonic() - start >= 0.9 * SMALL.wait_s
            go.set()
            assert first.result(30) == 200
            assert post() == 200  # nothing is left locked
        assert most == 1

    def test_what_waits_is_read_together_and_answered_as_alone(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        go, begun = threading.Event(), threading.Event()
        sizes: list[int] = []

        def held(model: Model, together: Sequence[Pending], limits: Limits) -> None:
            sizes.append(len(together))
            begun.set()
            assert go.wait(30)
            answer_examples(model, together, limits)

        monkeypatch.setattr("rss_rl.serving.app.answer_examples", held)
        asked = [
            {"texts": [TEXT]},
            {"texts": ["The film is bad"]},
            {"texts": ["word " * 30]},
            {"texts": [TEXT], "share": 0.2},
            {"texts": ["not good"]},
        ]
        limits = replace(SMALL, wait_s=30, waiting=8)
        with (
            client_of(reader("classes", seed=3), limits) as client,
            ThreadPoolExecutor(8) as pool,
        ):

            def post(one: dict[str, Any]) -> tuple[int, Any]:
                answer = client.post("/predict", json={"examples": [one]})
                return answer.status_code, answer.json()

            first = pool.submit(post, asked[0])
            assert begun.wait(30)
            others = [pool.submit(post, one) for one in asked]
            time.sleep(0.5)
            go.set()
            found = [other.result(30) for other in others]
            assert first.result(30) == found[0]
            alone = [post(one) for one in asked]
        assert sizes == [1, 5, *[1] * 5]
        assert [status for status, _ in found] == [200, 200, 413, 200, 200]
        for (_, together), (_, single) in zip(found, alone, strict=True):
            chances, expected = (
                each.get("examples", [{}])[0].pop("class_probabilities", {})
                for each in (together, single)
            )
            assert chances == pytest.approx(expected, abs=1e-6)
            assert together == single


@pytest.fixture(scope="module")
def guarded() -> Iterator[TestClient]:
    with client_of(reader("classes"), token="sesame", hosts=("*",)) as made:
        yield made


class TestToken:
    def test_what_is_told_of_a_run_needs_it(self, guarded: TestClient) -> None:
        for method, path in (("GET", "/model"), ("POST", "/predict")):
            for given_token in (None, "Bearer wrong", "Basic sesame", "sesame", "Bearer"):
                headers = {} if given_token is None else {"Authorization": given_token}
                answer = guarded.request(method, path, headers=headers)
                assert answer.status_code == 401
                assert answer.headers["www-authenticate"] == "Bearer"
        assert guarded.get("/model?token=sesame").status_code == 401

    def test_with_it_all_is_answered(self, guarded: TestClient) -> None:
        headers = {"Authorization": "bearer sesame"}
        assert guarded.get("/model", headers=headers).status_code == 200
        body = {"examples": [{"texts": [TEXT]}]}
        assert guarded.post("/predict", json=body, headers=headers).status_code == 200

    def test_the_page_and_health_do_not_need_it(self, guarded: TestClient) -> None:
        for path in ("/", "/page.css", "/page.js", "/health"):
            answer = guarded.get(path, headers={"Host": "example.org"})
            assert answer.status_code == 200
            assert "sesame" not in answer.text


class TestBrowsersAreKeptCareful:
    @pytest.mark.parametrize(
        "host", ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example:8000", "", "*"]
    )
    def test_other_names_are_refused(self, client: TestClient, host: str) -> None:
        for path in ("/", "/model", "/health"):
            assert client.get(path, headers={"Host": host}).status_code == 400

    @pytest.mark.parametrize("path", ["/", "/page.js", "/model", "/nowhere"])
    def test_every_answer_has_the_headers(self, client: TestClient, path: str) -> None:
        headers = client.get(path).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"

    def test_the_page_has_no_script_or_style_within(self, client: TestClient) -> None:
        page = client.get("/").text
        assert "<style" not in page
        assert " style=" not in page
        assert page.count("<script") == page.count('<script src="page.js"') == 1
        assert "http" not in page
