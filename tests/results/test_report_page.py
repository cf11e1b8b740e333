"""The report of runs: what it says is what the runs scored, and it needs no network."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np
import pandas as pd
import pytest
from chromium import start_browser
from tiny_runs import FILLERS, tiny_source, tiny_tree

from rss_rl.config import RunConfig
from rss_rl.data.prepare import prepare
from rss_rl.inference.model import load_model
from rss_rl.results.charts import curve_charts
from rss_rl.results.report_page import Part, gather_parts, report_page
from rss_rl.results.sentences import accuracy_interval
from rss_rl.runs.run_directory import RunDirectory
from rss_rl.training.run import train

HOSTILE = "<script>document.title='taken'</script>"
SVG = "{http://www.w3.org/2000/svg}"


def make_run(path: Path, data: Path, seed: int = 0, rate: float = 1e-3) -> Path:
    tree = tiny_tree(data) | {"seed": seed}
    tree["phases"] = [
        {"name": "warm-up", "supervised": True, "selection": "all", "steps": 4},
        {"name": "both", "supervised": True, "policy": True, "steps": 6},
    ]
    tree["evaluation"]["all_tokens"] = False
    tree["policy"]["options"]["initial_probability"] = 0.5  # so that roles differ
    tree["learner"]["policy"] = {"learning_rate": rate}
    list(train(RunConfig.model_validate(tree), path))
    return path


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two seeds without the comparison, and a run of another policy rate."""
    root = tmp_path_factory.mktemp("report")
    fillers = (*FILLERS[1:], HOSTILE)
    prepare(tiny_source(fillers=fillers), root / "data", dim=6)
    given = (("a-0", 0, 1e-3), ("a-1", 1, 1e-3), ("b-0", 0, 1e-2))
    made = [make_run(root / name, root / "data", seed, rate) for name, seed, rate in given]
    directory = RunDirectory.open(made[0])
    report = directory.read_report()
    report["splits"]["test"]["linear"] = {"accuracy": 0.625, "kept": 1.0}
    directory.write_report(report)
    return made


@pytest.fixture(scope="module")
def one(runs: list[Path]) -> Part:
    (part,) = gather_parts(runs[:1])
    return part


@pytest.fixture(scope="module")
def text(one: Part) -> str:
    return report_page([one])


def test_it_shows_the_scores_of_the_report(text: str, runs: list[Path]) -> None:
    scores = RunDirectory.open(runs[0]).read_report()["splits"]["test"]
    shown = [float(value.rstrip("%")) / 100 for _, value in bars_of(text)]
    wanted = [*(scores[mode]["accuracy"] for mode in ("thresholded", "random")), 0.625]
    np.testing.assert_allclose(shown, wanted, atol=6e-4)


def test_runs_that_differ_are_groups(text: str, runs: list[Path]) -> None:
    page = report_page(gather_parts(runs))
    assert "<th>learner.policy.learning_rate</th>" in page
    for shown, several in ((text, False), (page, True)):
        assert ("± " in shown) is several
        assert ("fill-opacity: 0.18" in shown) is several
        assert ("One seed, so no bands" in shown) is not several
        assert ("Means over 2 runs." in shown) is several


def test_a_run_that_trains_is_marked(runs: list[Path], tmp_path: Path) -> None:
    shutil.copytree(runs[2], tmp_path / "b-0")
    (tmp_path / "b-0" / "report.json").unlink()
    page = report_page(gather_parts([tmp_path / "b-0", runs[0]]))
    assert "b-0: is not finished" in page
    assert "Only the first" not in page
    assert "<td>b-0</td>" in page
    alone = report_page(gather_parts([tmp_path / "b-0"]))
    assert "Accuracy on dev." in alone
    assert "Size</dt>" not in alone


def test_classes_are_told_apart(one: Part, text: str) -> None:
    predictions = one.reading.predictions
    names = one.manifest.labels.names
    (table,) = re.findall(r'<table class="numbers" aria-label="Classes">.*?</table>', text, re.S)
    lines = re.findall(r"<tr><td>(.*?)</td></tr>", table)
    shown = [[int(cell) for cell in line.split("</td><td>")[5:]] for line in lines]
    of = [
        (predictions["label"] == k) & (predictions["predicted"] == j)
        for k in (0, 1)
        for j in (0, 1)
    ]
    assert np.ravel(shown).tolist() == [int(both.sum()) for both in of]
    assert "Confidence and accuracy" in text
    assert "Leaving the least certain out" in text
    kept = one.reading.class_words
    np.testing.assert_array_equal(kept.sum(axis=1), one.reading.words["kept"].reindex(kept.index))
    told = pd.DataFrame([[5, 1], [1, 5], [2, 2]], ["dull", "fine", "and"], list(names))
    page = report_page([replace(one, reading=replace(one.reading, class_words=told))])
    wanted = ("dull</td><td>5</td><td>6", "fine</td><td>5</td><td>6")
    for name, line in zip(names, wanted, strict=True):
        (words,) = re.findall(rf'aria-label="Kept for {name}, .*?</table>', page, re.S)
        assert re.findall(r"<tr><td>(.*?)</td></tr>", words) == [line]
    scores = one.frame.query("split == 'test' and mode == 'thresholded'")["accuracy"].iloc[0]
    low, high = accuracy_interval(scores, one.manifest.splits["test"].texts)
    assert f"{low:.1%} to {high:.1%} (kept words)" in text


def test_words_that_plead_are_said(one: Part, text: str) -> None:
    assert "too few texts" in text  # of test's few rows
    found = {
        "rows": 400,
        "reader": {"all": 0.7, "kept": 0.75, "random": 0.6},
        "told": {"kept": 0.9, "there": 0.6, "low": 0.2, "high": 0.4},
        "words": [{"word": "and", "texts": 50, "most": ("fine", 0.9), "least": ("dull", 0.1)}],
        "remedy": ["policy.options.pool=none"],
    }
    page = report_page([replace(one, trojan=found)])
    assert "Which of the 30 commonest words are kept" in page
    assert "policy.options.pool=none" in page
    assert "<td>and</td><td>fine: 90%</td><td>dull: 10%</td><td>50</td>" in page


def test_it_loads_nothing_and_takes_words_for_words(text: str) -> None:
    assert HOSTILE not in text
    assert "mathdefault" not in text  # numbers along an axis are plain text, too
    assert "&lt;script&gt;" in text
    assert text.count("</script>") == 1
    assert not re.search(r"<(link|script|img|iframe)[^>]*\s(src|href)=", text)


def test_marked_words_are_those_that_the_model_selects(one: Part, runs: list[Path]) -> None:
    model = load_model(runs[0])
    texts = (*one.reading.right, *one.reading.wrong)
    assert len({text.id for text in texts}) == len(texts) >= 8
    assert any(0 < text.share < 1 for text in texts)
    for shown in texts:
        found = model.explain(shown.words[0])
        np.testing.assert_array_equal(found.sentences[0].kept, shown.kept[0])
        assert found.prediction == shown.prediction
        assert found.class_probabilities is not None
        assert shown.confidence is not None
        assert found.class_probabilities[str(found.prediction)] == pytest.approx(
            shown.confidence, abs=1e-5
        )
    assert all(text.prediction == text.label for text in one.reading.right)
    assert all(text.prediction != text.label for text in one.reading.wrong)


def drawn(frame: pd.DataFrame, metric: str | None = None) -> list[ET.Element]:
    return [ET.fromstring(svg) for svg in curve_charts(frame, metric)]


def lines_of(chart: ET.Element) -> list[tuple[str, list[float]]]:
    """Colour, and places along x, of each stretch of a curve."""
    paths = [path for path in chart.iter(f"{SVG}path") if "series" in path.attrib.get("style", "")]
    found = []
    for path in paths:
        colour = re.search(r"stroke: (var\(--series-\d\))", path.attrib["style"])
        if colour is not None and path.attrib.get("clip-path"):
            for stretch in path.attrib["d"].split("M")[1:]:
                xs = re.findall(r"(?:^|L) ([\d.]+)", stretch)
                found.append((colour[1], [float(x) for x in xs]))
    return found


def test_curves_have_colours_of_the_page_and_a_gap_where_nothing_was_measured(
    one: Part, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The classifier does not learn in the second of three phases."""
    updates = pd.RangeIndex(1, 301, name="step")
    logged = pd.DataFrame({"phase/index": (updates - 1) // 100 % 2, "reward/total": 0.0}, updates)
    logged["train/loss"] = (1 / updates.to_series()).where(logged["phase/index"] == 0)
    logged["dev/thresholded/loss"] = pd.Series({100: 1.0, 300: 0.5})
    monkeypatch.setattr("rss_rl.results.charts.read_curves", lambda path: logged)
    reward, loss = drawn(one.frame)
    assert len(lines_of(reward)) == 1
    dev, before, after = lines_of(loss)
    assert before[0] == after[0] == "var(--series-2)"
    assert dev[0] == "var(--series-1)"
    start, end = dev[1]  # updates 100 and 300
    assert before[1][-1] == pytest.approx(start, abs=3)
    assert after[1][0] > (start + end) / 2
    assert len(before[1]) + len(after[1]) <= 80
    assert not re.search("#[0-9a-f]{6}", ET.tostring(loss, "unicode").replace("#m", ""))


def test_seeds_that_were_scored_at_other_updates_have_a_curve(
    runs: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As those of a limited time; and no name in the legend stands for nothing."""
    scores = iter([pd.Series({0: 0.0, 10: 1.0}), pd.Series({5: 0.5, 15: 1.5})])
    never = iter([pd.Series({0: 0.1}), pd.Series({9: 0.1})])
    monkeypatch.setattr(
        "rss_rl.results.charts.read_curves",
        lambda path: pd.DataFrame(
            {"dev/thresholded/loss": next(scores), "dev/all/accuracy": next(never)}
        ),
    )
    (part,) = gather_parts(runs[:2])
    (loss,) = drawn(part.frame, "accuracy")
    label = loss.attrib["aria-label"]
    assert label == "Loss of the classifier: dev from 0.5 to 1"


def test_in_a_browser(text: str, tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text(text, encoding="utf-8")
    with start_browser() as browser:
        for width in (1800, 360):
            browser.open(tmp_path / "page.html", width=width)
            assert browser.value("document.documentElement.scrollWidth") <= width
        browser.page.click("#theme")
        theme: Any = browser.value("document.documentElement.dataset.theme")
        assert theme in ("light", "dark")
        assert browser.problems == []
        assert [url for url in browser.requests if not url.startswith("file:")] == []


def test_readmes_pictures_can_be_made_again(
    runs: list[Path], repository: Path, tmp_path: Path
) -> None:
    with start_browser():
        pass  # or skipped
    script = repository / "docs" / "pictures.py"
    subprocess.run([sys.executable, script, runs[0], "--out", tmp_path], check=True)
    readme = (repository / "README.md").read_text(encoding="utf-8")
    for name in ("explain.png", "report.png"):
        assert (tmp_path / name).read_bytes()[:4] == b"\x89PNG"
        assert f"docs/pictures/{name}" in readme


def test_a_screen_reader_says_what_the_report_shows(text: str, tmp_path: Path) -> None:
    """Charts in words, tables by name, values with what they are of, kept words as such."""
    (tmp_path / "page.html").write_text(text, encoding="utf-8")
    with start_browser() as browser:
        browser.open(tmp_path / "page.html")
        browser.value("document.querySelectorAll('details').forEach(one => { one.open = true; })")
        spoken = browser.spoken()
        browser.page.keyboard.press("Tab")
        assert browser.value("document.activeElement.id") == "theme"
        browser.page.keyboard.press("Tab")
        assert browser.value("document.activeElement.localName") == "summary"
        browser.page.keyboard.press("Enter")
        assert not browser.value("document.activeElement.parentElement.open")
    roles = {node.role for node in spoken}
    assert not roles & {"graphics-symbol", "SvgRoot"}  # the marks of charts, one by one
    images = [node.name for node in spoken if node.role == "image"]
    assert len(images) == text.count("<svg") > 3
    assert all(": " in name for name in images)
    tables = [node.name for node in spoken if node.role == "table"]
    assert len(tables) == text.count("<table") > 3
    assert all(tables)
    rows = [node.text for node in spoken if node.role == "listitem"]
    wanted = [f"{name} {value}" for name, value in bars_of(text)]
    assert rows == wanted
    kept = [node.text for node in spoken if node.role == "mark"]
    assert len(kept) == text.count("<mark") > 0
    assert all(text.startswith("kept: ") for text in kept)
    levels = [node.properties["level"] for node in spoken if node.role == "heading"]
    assert levels[0] == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))


def bars_of(text: str) -> list[tuple[str, str]]:
    """Name and value of each bar of a report."""
    return re.findall(
        r'<span class="name">(.*?)</span>.*?<span class="share">(.*?)</span>', text, re.S
    )
