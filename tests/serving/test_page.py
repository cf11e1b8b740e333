"""The served page in a real Chromium: typing, slider, clicks, keyboard, narrow screens."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from chromium import Browser, start_browser
from readers import reader

from rss_rl.inference.explanation import Explanation
from rss_rl.inference.model import Model
from rss_rl.serving.app import listen, make_app, make_server

TEXT = "w3 w9 w4 w8 w5 zyx <b>w6</b>"
TOKEN = "sesame"


@contextmanager
def served(model: Model, token: str | None = None) -> Iterator[str]:
    """The address of a server in a thread."""
    server = make_server(make_app(model, "one", token=token))
    with listen("127.0.0.1", 0) as listening:
        port = listening.getsockname()[1]
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            yield f"http://127.0.0.1:{port}/"
        finally:
            server.should_exit = True
            thread.join(30)


@pytest.fixture(scope="module")
def model() -> Model:
    return reader("classes", seed=3)


@pytest.fixture(scope="module")
def started(model: Model) -> Iterator[tuple[Browser, str]]:
    with start_browser() as browser, served(model) as address:
        yield browser, address


@pytest.fixture
def browser(started: tuple[Browser, str]) -> Browser:
    """The page, with TEXT typed into it."""
    opened, address = started
    opened.open("about:blank")
    opened.open(address)
    opened.page.wait_for_selector("#text-0")
    opened.page.click("textarea")
    opened.page.keyboard.insert_text(TEXT)
    opened.page.wait_for_selector(".run .prediction:not(:empty)")
    settled(opened)
    return opened


def settled(browser: Browser) -> None:
    browser.page.wait_for_selector(".stale", state="detached")


def explained(model: Model, **given: Any) -> Explanation:
    return model.read([model.encode([TEXT])], **given)[0]


def assert_shows(browser: Browser, wanted: Explanation) -> None:
    """Words, which of them are kept, the prediction and its probabilities of one run."""
    settled(browser)
    run = "document.querySelector('.run')"
    words = browser.value(f"[...{run}.querySelectorAll('.word')].map(e => e.textContent)")
    assert words == list(wanted.sentences[0].words)
    pressed = browser.value(
        f"[...{run}.querySelectorAll('.word')].map(e => e.getAttribute('aria-pressed'))"
    )
    assert [bit == "true" for bit in pressed] == wanted.sentences[0].kept.tolist()
    said = browser.value(f"{run}.querySelector('.prediction').dataset.prediction")
    assert said == wanted.prediction
    shares = browser.value(f"[...{run}.querySelectorAll('.share')].map(e => e.textContent)")
    assert wanted.class_probabilities is not None
    found = [float(share.rstrip("%")) / 100 for share in shares]
    np.testing.assert_allclose(found, [*wanted.class_probabilities.values()], atol=6e-4)


def flipped(model: Model, place: int) -> Explanation:
    encoded = model.encode([TEXT])
    kept = explained(model).sentences[0].kept.copy()
    kept[place] ^= True
    return model.read([encoded], keep=[kept[None]])[0]


def test_what_is_typed_is_read(browser: Browser, model: Model) -> None:
    assert_shows(browser, explained(model))
    assert "one" in browser.value("document.title")
    assert browser.value("document.querySelectorAll('.run b').length") == 0  # words are no markup


def test_the_keyboard_does_all_of_it(browser: Browser, model: Model) -> None:
    here = "document.activeElement"
    browser.value("document.querySelector('textarea').focus()")
    passed = []
    while not browser.value(f"{here}.classList.contains('word')"):
        browser.page.keyboard.press("Tab")
        passed.append(browser.value(f"{here}.id"))
        assert len(passed) < 6
    assert passed[:2] == ["share", "own"]
    browser.page.keyboard.press("Space")
    assert_shows(browser, flipped(model, 0))
    browser.page.click(".run .word:nth-child(1)")
    assert_shows(browser, explained(model))
    browser.page.keyboard.press("Tab")
    browser.page.keyboard.press("ArrowRight")
    assert browser.value(f"{here}.textContent") == explained(model).sentences[0].words[2]
    browser.page.keyboard.press("Enter")
    assert_shows(browser, flipped(model, 2))
    assert browser.value(f"{here}.classList.contains('word')")  # the focus stays


def test_a_screen_reader_says_what_the_page_shows(browser: Browser, model: Model) -> None:
    """Every control and word by name, state and what it does; nothing twice."""
    spoken = browser.spoken()
    controls = [node for node in spoken if node.role in ("button", "slider", "textbox")]
    assert all(node.name for node in controls)
    assert {(node.role, node.name) for node in controls} >= {
        ("textbox", "Text"),
        ("slider", "Words kept"),
        ("button", "The policy's own choice"),
        ("button", "Switch between light and dark"),
    }
    words = [node for node in controls if "pressed" in node.properties and "prob" in str(node)]
    wanted = explained(model)
    (shown,) = wanted.sentences
    assert tuple(node.name for node in words) == shown.words
    pressed = [node.properties["pressed"] == "true" for node in words]
    assert pressed == shown.kept.tolist()
    assert all("as dependent" in node.description for node in words)
    articles = [node.name for node in spoken if node.role == "article"]
    assert articles == ["one"]
    assert wanted.class_probabilities is not None
    rows = [node.text for node in spoken if node.role == "listitem"]
    assert rows[: len(wanted.class_probabilities)] == [
        f"{name} {share:.1%}" for name, share in wanted.class_probabilities.items()
    ]


def test_nothing_fails_and_nothing_is_asked_of_others(
    browser: Browser, started: tuple[Browser, str]
) -> None:
    assert browser.problems == []
    address = started[1]
    strangers = [
        url for url in browser.requests if not url.startswith((address, "data:", "about:"))
    ]
    assert strangers == []


def test_the_token_comes_with_the_address_and_leaves_it(
    started: tuple[Browser, str], model: Model
) -> None:
    browser, _ = started
    with served(model, TOKEN) as address:
        browser.open(address)
        browser.page.get_by_text("token").first.wait_for()
        browser.problems.clear()  # Chromium reports the 401
        browser.open("about:blank")
        browser.requests.clear()
        browser.open(f"{address}#token={TOKEN}")
        browser.page.wait_for_selector("#text-0")
        assert TOKEN not in browser.value("location.href")
        browser.page.reload()
        browser.page.wait_for_selector("#text-0")
        assert browser.problems == []
