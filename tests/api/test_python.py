"""What `import rss_rl` offers: prepare, fit, train, Run, load."""

from __future__ import annotations

import inspect
import json
import pickle
import random
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch

import rss_rl
from rss_rl.config import EvaluationConfig, PhaseConfig, RunConfig
from rss_rl.errors import ConfigError, DataError, RssError
from rss_rl.inference.explanation import Explanation, MarkedSentence
from rss_rl.logs.metrics import read_metrics
from rss_rl.training.stopping import Costs, TimeBudget, seconds
from rss_rl.training.trainer import Evaluated, Updated

pytestmark = pytest.mark.usefixtures("no_charts")
SMALL = {
    "model.hidden": 8,
    "model.attention": "eager",
    "batch_size": 16,
    "evaluation.every": 6,
    "evaluation.all_tokens": False,
    "phases.0.steps": 6,
    "phases.1.steps": 4,
    "phases.2.steps": 4,
    "phases.3.steps": 4,
}


def rows(count: int = 120) -> list[dict[str, str]]:
    """Reviews whose class one word tells."""
    draw = random.Random(0)
    filler = ["the", "film", "that", "we", "saw", "in", "this", "town"]
    made = []
    for number in range(count):
        words = draw.choices(filler, k=8)
        words.insert(draw.randrange(8), ("fine", "dull")[number % 2])
        made.append({"review": " ".join(words), "stars": ("up", "down")[number % 2]})
    return made


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> rss_rl.Run:
    out = tmp_path_factory.mktemp("fit") / "reviews"
    events: list[Any] = []
    found = rss_rl.fit(
        rows(), text="review", label="stars", keep=0.4, out=out, overrides=SMALL,
        callbacks=[events.append],
    )  # fmt: skip
    assert sum(isinstance(event, Updated) for event in events) == 18
    assert any(isinstance(event, Evaluated) for event in events)
    return found


def test_a_callback_that_raises_ends_the_run_which_the_same_call_continues(tmp_path: Path) -> None:
    def refuse(event: Any) -> None:
        if isinstance(event, Updated) and event.update == 16:
            raise ValueError("no more of this")

    given: dict[str, Any] = {"text": "review", "label": "stars", "out": tmp_path / "run"}
    with pytest.raises(ValueError, match="no more of this"):
        rss_rl.fit(rows(), **given, overrides=SMALL, callbacks=[refuse])
    status = json.loads((tmp_path / "run" / "status.json").read_text())
    assert status["state"] == "failed"
    log = (tmp_path / "run" / "events.jsonl").read_text().splitlines()
    assert json.loads(log[-1])["error"] == "no more of this"
    with pytest.raises(ConfigError, match="there is already a run"):
        rss_rl.fit(rows(), **given, overrides=SMALL, keep=0.2)
    reports: list[Any] = []
    again = rss_rl.fit(rows(), **given, overrides=SMALL, seeds=2, callbacks=[reports.append])
    assert [path.name for path in again.paths] == ["run", "run-seed1"]
    for path in again.paths:
        assert rss_rl.Run(path).finished
        assert {"linear", "weights"} < set(rss_rl.Run(path).report["splits"]["test"])
    assert '"run_resumed"' in (tmp_path / "run" / "events.jsonl").read_text()
    assert sum(isinstance(event, Updated) for event in reports) < 2 * 18
    with pytest.raises(ConfigError, match="there is already a finished run"):
        rss_rl.fit(rows(), **given, overrides=SMALL, seeds=2)


def test_columns_named_by_numbers_and_no_gradients_around(tmp_path: Path) -> None:
    """As pandas names columns, and as a notebook may have left torch."""
    table = pd.DataFrame([[row["review"], row["stars"]] for row in rows()])
    with torch.inference_mode():
        run = rss_rl.fit(table, text=0, label=1, out=tmp_path / "run", overrides=SMALL)
    assert run.finished
    prepared = rss_rl.prepare(table, text=0, label=1, out=tmp_path / "data")
    assert prepared.labels.names == ("down", "up")


def test_names_that_are_too_long_are_no_files(tmp_path: Path) -> None:
    name = "x" * 300
    given: dict[str, Any] = {"text": "review", "label": "stars", "out": tmp_path / "run"}
    for call in (
        lambda: rss_rl.load(name),
        lambda: rss_rl.train(name),
        lambda: rss_rl.fit(rows(), **given, config=name),
        lambda: rss_rl.fit(rows(), **given, pretrained=f"/{name}"),
        lambda: rss_rl.fit(rows(), **{**given, "out": tmp_path / name}, overrides=SMALL),
    ):
        with pytest.raises(RssError, match=name):
            call()


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_other_default_numbers_of_torch_are_refused(
    run: rss_rl.Run, tmp_path: Path, dtype: torch.dtype
) -> None:
    torch.set_default_dtype(dtype)
    try:
        with pytest.raises(ConfigError, match=f"makes {dtype} on cpu") as error:
            rss_rl.fit(rows(), text="review", label="stars", out=tmp_path / "run")
        assert "set_default_dtype" in str(error.value.remedy)
        with pytest.raises(ConfigError, match=f"makes {dtype} on cpu"):
            rss_rl.load(run.path)
    finally:
        torch.set_default_dtype(torch.float32)
    with torch.device("meta"), pytest.raises(ConfigError, match=r"makes torch.float32 on meta"):
        rss_rl.fit(rows(), text="review", label="stars", out=tmp_path / "run")
    assert not list(tmp_path.iterdir())


def test_fit_is_a_finished_run_with_all_that_one_asks_of_it(run: rss_rl.Run) -> None:
    assert run.finished
    assert run.config.reward.target_share == 0.4
    assert run.config.evaluation.best_metric == "auto"
    assert run.report["steps"] == 18
    assert set(run.curves()) >= {"reward/total", "train/loss"}
    assert set(run.report["trojan"]) == set(run.report["coverage"]) == {"test"}
    assert run.report["coverage"]["test"][-1]["coverage"] == 1
    again = rss_rl.Run(run.path)
    dev = again.evaluate("dev", ["thresholded"])["thresholded"]
    assert dev["kept"] == pytest.approx(run.report["splits"]["dev"]["thresholded"]["kept"])
    assert again.resume().report == run.report  # finished: as it is
    record = json.loads((run.path / "provenance.json").read_text())
    assert record["rss_rl"] == rss_rl.__version__
    assert record["libraries"]["torch"]
    assert record["learner.precision"] == "float32"
    assert re.fullmatch("[0-9a-f]{64}", record["data"]["manifest_sha256"])


def test_commands_are_functions(run: rss_rl.Run, tmp_path: Path) -> None:
    scores = rss_rl.evaluate(run.path, split="dev", mode=["thresholded"])
    assert scores == {str(run.path): run.evaluate("dev", ["thresholded"])}
    test = run.report["splits"]["test"]
    linear = {mode: test[mode] for mode in ("linear", "weights")}
    assert rss_rl.evaluate(run.path)[str(run.path)] | linear == test
    assert rss_rl.status(run.path).state == "finished"
    frame = rss_rl.report(run.path, html=tmp_path / "report.html")
    assert set(frame["mode"]) == {"thresholded", "sampled", "random", *linear}
    folder = rss_rl.export(run.path, out=tmp_path / "model")
    here, there = (rss_rl.select(place, ["a fine film"]) for place in (run.path, folder))
    assert here.to_dict() == there.to_dict()
    page = rss_rl.explain(folder, ["a fine film"], out=tmp_path / "explain.html")
    assert "<html" in page.read_text()[:200]
    source, target = tmp_path / "in.csv", tmp_path / "out.csv"
    pd.DataFrame(rows(5)).to_csv(source)
    rss_rl.predict(folder, input=str(source), output=str(target), text="review")
    assert len(pd.read_csv(target)) == 5


def test_answers_print_and_render(run: rss_rl.Run) -> None:
    text = 'A "dull" film.'
    found = run.model.explain(text)
    (sentence,) = found.sentences
    assert repr(sentence).replace("[", "").replace("]", "") == "A `` dull '' film ."
    assert repr(found).startswith(str(found.prediction))
    assert found._repr_html_().count("<mark ") == int(sentence.kept.sum())
    assert found.kept_words == re.findall(r"\[(.*?)\]", repr(sentence))
    column = pd.DataFrame({"review": [text, "a fine film"]})
    assert next(map(repr, run.model.predict(column))) == repr(found)
    with pytest.raises(DataError, match="got a DataFrame"):
        run.model.predict(column.assign(other="x"))
    words = found.to_dict()["sentences"][0]
    assert words[2]["word"] == "dull"
    json.dumps(found.to_dict())
    assert "Predicts one of: down, up; trained on " in repr(run.model)
    assert "the accuracy on test is " in repr(run.model)


def test_notebooks_show_selections(run: rss_rl.Run) -> None:
    shown = run.model.explain("<script>alert(1)</script> & dull")._repr_html_()
    assert "<script" not in shown
    assert "&lt;" in shown
    assert "http" not in shown
    ElementTree.fromstring(f"<div>{shown}</div>")  # every element is closed in its turn


def test_an_empty_sentence_is_shown(run: rss_rl.Run) -> None:
    empty = MarkedSentence((), np.zeros(0, bool), np.zeros((2, 0), bool), None)
    assert Explanation((empty,), None, None)._repr_html_()


def test_curves_have_a_row_for_each_update(run: rss_rl.Run) -> None:
    curves = run.curves()
    assert curves.index.tolist() == list(range(19))
    tags = list(curves)
    scores = [tag for tag in tags if tag.startswith("dev/")]
    assert tags[: len(scores)] == scores
    long = read_metrics(run.path).to_pylist()
    last = {(row["step"], row["tag"]): row["value"] for row in long}
    found = curves.stack().dropna()
    assert found.to_dict() == last


@pytest.mark.parametrize(
    "example", [5, None, 2.5, ("a", 5), {"text": "a"}], ids=["int", "None", "float", "word", "dict"]
)
def test_what_is_no_text_is_a_clear_error(run: rss_rl.Run, example: Any) -> None:
    with pytest.raises(DataError, match="example 2: .*where a text is expected"):
        run.model.predict(["fine", example])


@pytest.mark.parametrize("kind", ["rows", "arrow", "pandas", "generator", "file", "files"])
def test_data_of_any_kind_prepares_the_same(kind: str, tmp_path: Path) -> None:
    plain = rows(40)
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in plain))
    data: Any = {
        "rows": plain, "arrow": pa.Table.from_pylist(plain), "generator": iter(plain),
        "file": path, "files": [str(path)], "pandas": None,
    }[kind]  # fmt: skip
    if kind == "pandas":
        data = pd.DataFrame(plain)
    prepared = rss_rl.prepare(data, text="review", label="stars", out=tmp_path / "out", dim=4)
    assert prepared.labels.names == ("down", "up")
    assert sum(info.rows for info in prepared.manifest.splits.values()) == 40


@pytest.mark.parametrize("data", [[], 5, [1, 2], [{"review": object(), "stars": 1}]])
def test_what_is_no_table_is_a_clear_error(data: Any, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no rows|cannot be read as a table"):
        rss_rl.prepare(data, text="review", label="stars", out=tmp_path / "out")


def test_settings_may_be_a_mapping_or_a_tree(run: rss_rl.Run, tmp_path: Path) -> None:
    phases = [{"name": "only", "supervised": True, "selection": "all", "steps": 2}]
    tree = {"data": run.config.data, "phases": phases, "model": {"attention": "eager"}}
    found = rss_rl.train(tree, {"model.hidden": 4, "seed": 3}, out=tmp_path / "run")
    assert (found.config.model.hidden, found.config.seed) == (4, 3)
    assert found.evaluate("dev").keys() == {"all"}


def test_time_bounds_a_training(run: rss_rl.Run, tmp_path: Path) -> None:
    tree = run.config.model_dump(mode="json")
    phases = [dict(phase, steps=100_000) for phase in tree["phases"]]
    for learner in ("supervised", "policy"):
        tree["learner"][learner]["decay_updates"] = None
    found = rss_rl.train({**tree, "phases": phases}, out=tmp_path / "run", time="3s")
    assert found.finished
    assert 4 <= found.report["steps"] < 100_000  # each of four phases made an update
    assert found.report["wall_seconds"] < 60


def test_a_duration_is_read_and_shared_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """In proportion to the steps; an early end is the next phase's, three tenths a comparison's."""
    assert [seconds(d) for d in (90, "90s", "5m", "1.5h")] == [90, 90, 300, 5400]
    for wrong in ("5 days", "", "-1", 0, "m"):
        with pytest.raises(ConfigError, match="not a duration"):
            seconds(wrong)
    clock = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: clock[0])
    first = PhaseConfig(name="a", supervised=True, selection="all", steps=30)
    phases = (first, PhaseConfig(name="b", supervised=True, policy=True, steps=10))
    config = RunConfig(data="some", phases=phases)
    alone = config.model_copy(update={"evaluation": EvaluationConfig(all_tokens=False)})
    costs = Costs([1.0, 9.0])  # of an update: a quarter of the time for the first phase

    def check(budget: TimeBudget, *wanted: tuple[float, int, bool]) -> None:
        for clock[0], phase, over in wanted:
            assert budget.over(phase) is over, (clock[0], phase)

    check(TimeBudget(alone, 40, costs), (0.0, 0, False), (10.0, 0, True))
    clock[0] = 0.0
    check(TimeBudget(alone, 40, costs), (4.0, 1, False), (39.9, 1, False), (40.0, 1, True))
    clock[0] = 0.0  # the comparison makes as many updates of all words as the second phase
    budget = TimeBudget(config, 65, costs)
    check(budget, (0.0, 0, False), (15.1, 0, True), (15.0, 1, False), (59.9, 1, False))
    check(budget, (60.1, 1, True))
    check(TimeBudget(alone, budget.left_s), (60.1, 1, False), (64.9, 1, False), (65.1, 1, True))
    clock[0] = 0.0  # evaluations take what they take: two of each phase, and six at the end
    budget = TimeBudget(alone, 100, Costs([1.0, 9.0], evaluation=6.0))
    assert budget.cost(0, 30) == 30 + 90 + 9 * 6
    check(budget, (6.0, 0, False), (15.9, 0, False), (16.1, 0, True))  # a quarter of 94 - 9 x 6


def test_what_is_offered_is_listed() -> None:
    assert "fit" in dir(rss_rl)
    with pytest.raises(AttributeError, match="no attribute 'fitt'"):
        rss_rl.fitt  # noqa: B018


OFFERED = [name for name in rss_rl.__all__ if inspect.isfunction(getattr(rss_rl, name))]


@pytest.mark.parametrize("name", OFFERED)
def test_help_names_every_argument_in_types_that_one_can_read(name: str) -> None:
    function = getattr(rss_rl, name)
    shown = str(inspect.signature(function))
    assert not re.search("Annotated|Typed|Unpack|Ellipsis| at 0x", shown)
    told = re.findall(r"(?m)^ *(\w+): ", inspect.cleandoc(function.__doc__))
    assert not {*inspect.signature(function).parameters} - {*told}
    assert pickle.loads(pickle.dumps(function)) is function


def test_help_of_fit_has_how_tables_are_read() -> None:
    shown = inspect.signature(rss_rl.fit)
    assert {"vectors", "dev", "test", "split", "time"} < {*shown.parameters}
    assert "time: str | float | None = None" in str(shown)
    assert "split: str | Sequence[float] = ..." in str(shown)
