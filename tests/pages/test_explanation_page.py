"""The explanation page, as text and in a real Chromium where there is one."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from chromium import Browser, start_browser
from readers import TASKS, reader

from rss_rl.inference.facts import Facts, gather_facts
from rss_rl.pages.explanation import explanation_page

HOSTILE = ("w3", "</script><script>document.title='taken'</script>", "<b>w4</b>", "@DATA@", "w8")
NAMES = ("no", "maybe", "yes")


@pytest.fixture(scope="module")
def facts() -> Facts:
    model = reader("classes", seed=3)
    return gather_facts(model, model.encode([HOSTILE]))


@pytest.fixture(scope="module")
def text(facts: Facts) -> str:
    return explanation_page("A <title>", TASKS["classes"][0], facts, "a & b")


def data_of(text: str) -> Any:
    (found,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', text, re.S)
    return json.loads(found)


def test_the_page_carries_the_facts_and_no_foreign_markup(text: str, facts: Facts) -> None:
    data = data_of(text)
    (sentence,) = data["sentences"]
    assert sentence["words"] == list(HOSTILE)
    for place, flip in enumerate(sentence["flips"]):
        np.testing.assert_allclose([share for _, share in flip], facts.flips[0][place], atol=1e-5)
    assert "<title>A &lt;title&gt;</title>" in text
    assert "a &amp; b" in text
    assert text.count("</script>") == 2


def test_it_names_no_place_to_load_from(text: str) -> None:
    assert "http" not in text.replace("http-equiv", "")
    assert not re.search(r"<(link|script|img|iframe)[^>]*\s(src|href)=", text)


@pytest.mark.parametrize("task", TASKS)
def test_every_kind_of_task_has_a_page(task: str) -> None:
    model = reader(task, seed=3)
    made = gather_facts(model, model.encode(TASKS[task][2]))
    data = data_of(explanation_page("x", model.labels, made))
    assert [len(slot["words"]) for slot in data["sentences"]] == [
        len(flips) for flips in made.flips
    ]


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory, text: str) -> Iterator[Browser]:
    root = tmp_path_factory.mktemp("chromium")
    (root / "page.html").write_text(text, encoding="utf-8")
    with start_browser() as started:
        started.open(root / "page.html")
        yield started


def predicted(browser: Browser) -> str:
    return str(browser.value("document.querySelector('.prediction').dataset.prediction"))


def shares(browser: Browser) -> list[float]:
    found = browser.value("[...document.querySelectorAll('.share')].map(e => e.textContent)")
    return [float(share.rstrip("%")) / 100 for share in found]


def test_it_shows_words_roles_and_prediction(browser: Browser, facts: Facts) -> None:
    assert browser.value("document.title") == "A <title>"
    words = browser.value("[...document.querySelectorAll('.word')].map(e => e.textContent)")
    assert words == list(HOSTILE)
    for role, name in enumerate(("head", "dependent")):
        marked = browser.value(
            f"[...document.querySelectorAll('.word')].map(e => e.classList.contains('{name}'))"
        )
        assert marked == facts.explanation.sentences[0].selection[role].tolist()
    assert predicted(browser) == facts.explanation.prediction
    np.testing.assert_allclose(shares(browser), facts.outcome, atol=6e-4)


def test_a_click_forces_a_word_and_a_second_one_takes_it_back(
    browser: Browser, facts: Facts
) -> None:
    for place in range(len(HOSTILE)):
        browser.page.click(f"[data-at='0-{place}']")
        np.testing.assert_allclose(shares(browser), facts.flips[0][place], atol=6e-4)
        assert predicted(browser) == NAMES[int(facts.flips[0][place].argmax())]
        browser.page.click(f"[data-at='0-{place}']")
        np.testing.assert_allclose(shares(browser), facts.outcome, atol=6e-4)


def test_the_keyboard_does_all_of_it(browser: Browser, facts: Facts) -> None:
    browser.value("document.querySelector('[data-at=\"0-0\"]').focus()")
    browser.page.keyboard.press("ArrowRight")
    assert browser.value("document.activeElement.dataset.at") == "0-1"
    browser.page.keyboard.press("Enter")
    np.testing.assert_allclose(shares(browser), facts.flips[0][1], atol=6e-4)
    assert browser.value("document.activeElement.getAttribute('aria-pressed')") == "true"
    browser.page.keyboard.press("Escape")
    np.testing.assert_allclose(shares(browser), facts.outcome, atol=6e-4)


def test_a_screen_reader_says_what_the_page_shows(browser: Browser, facts: Facts) -> None:
    spoken = browser.spoken()
    controls = [node for node in spoken if node.role in ("button", "radio")]
    assert all(node.name for node in controls)
    words = [node for node in controls if node.role == "button" and node.description]
    assert [node.name for node in words] == list(HOSTILE)
    for place, node in enumerate(words):
        after = facts.flips[0][place]
        forced = "out" if facts.explanation.sentences[0].kept[place] else "in"
        assert "as head" in node.description
        assert f"Forced {forced}: {NAMES[after.argmax()]} {after.max():.1%}" in node.description
    assert [node.name for node in spoken if node.role == "radio"] == [
        "Selection",
        "Effect of a flip",
    ]
    rows = [node.text for node in spoken if node.role == "listitem"]
    assert rows == [f"{n} {p:.1%}" for n, p in zip(NAMES, facts.outcome, strict=True)]


def test_nothing_fails_and_nothing_is_asked_of_a_network(browser: Browser) -> None:
    assert browser.problems == []
    assert [url for url in browser.requests if not url.startswith(("file:", "data:"))] == []
