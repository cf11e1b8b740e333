"""The report of runs: what it says is what the runs scored, and it needs no network."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from chromium import Browser, find_chromium
from tiny_runs import TinySource, tiny_tree
from typer.testing import CliRunner

from rss_rl.cli.main import app
from rss_rl.config import RunConfig
from rss_rl.data.prepare import prepare
from rss_rl.inference.model import load_model
from rss_rl.pages.charts import Chart, Level, Line, Point, draw
from rss_rl.pages.report import Facts, gather_facts, report_page
from rss_rl.pages.report_charts import curve_charts
from rss_rl.pages.report_texts import marked_text
from rss_rl.results.curves import Curve
from rss_rl.results.reading import Reading, ReadText, WordCount, read_split, words_by_share
from rss_rl.runs.run_directory import RunDirectory
from rss_rl.training.run import train

HOSTILE = "<script>document.title='taken'</script>"


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two seeds without the comparison, and a run of another policy rate."""
    root = tmp_path_factory.mktemp("report")
    fillers = (*TinySource().fillers[1:], HOSTILE)
    prepare(TinySource(fillers=fillers), root / "data", dim=6)
    found = []
    for name, seed, rate in (("a-0", 0, 1e-3), ("a-1", 1, 1e-3), ("b-0", 0, 1e-2)):
        tree = tiny_tree(root / "data") | {"seed": seed}
        tree["phases"] = [
            {"name": "warm-up", "supervised": True, "selection": "all", "steps": 4},
            {"name": "both", "supervised": True, "policy": True, "steps": 6},
        ]
        tree["evaluation"]["all_tokens"] = False
        tree["policy"]["options"]["initial_probability"] = 0.5  # so that roles differ
        tree["learner"]["policy"] = {"learning_rate": rate}
        list(train(RunConfig.model_validate(tree), root / name))
        found.append(root / name)
    return found


@pytest.fixture(scope="module")
def one(runs: list[Path]) -> Facts:
    return gather_facts(runs[:1])


@pytest.fixture(scope="module")
def text(one: Facts) -> str:
    return report_page(one)


def test_it_shows_the_scores_of_the_report(text: str, runs: list[Path]) -> None:
    scores = RunDirectory.open(runs[0]).read_report()["splits"]["test"]
    bars = re.findall(r'<span class="share">([\d.]+)%</span>', text)
    shown = [float(value) / 100 for value in bars]
    wanted = [scores[mode]["accuracy"] for mode in ("thresholded", "random")]
    np.testing.assert_allclose(shown[:2], wanted, atol=6e-4)
    assert len(shown) == 3  # and what the same classifier makes of all words


def test_another_share_than_was_asked_for_is_said(one: Facts) -> None:
    (group,) = one.groups
    (run,) = group.runs
    assert "<strong>Warning:" not in report_page(one)
    asked = {**run.config, "reward": {**run.config["reward"], "target_share": 0.03}}
    facts = replace(one, groups=(replace(group, runs=(replace(run, config=asked),)),))
    assert "3% were asked for" in report_page(facts)


def test_bands_stand_only_where_there_are_seeds(text: str, runs: list[Path]) -> None:
    two = report_page(gather_facts(runs[:2]))
    for page, has in ((text, False), (two, True)):
        assert ("± " in page) is has
        assert ('<polygon points="' in page) is has
    assert "One seed, so no bands" in text
    assert "Means over 2 seeds." in two


def test_runs_that_differ_are_groups_and_draw_a_frontier(text: str, runs: list[Path]) -> None:
    page = report_page(gather_facts(runs[::2]))
    assert "What fewer words cost" in page
    assert "<th>learner.policy.learning_rate</th>" in page
    assert "What fewer words cost" not in text


def test_it_loads_nothing_and_takes_words_for_words(text: str) -> None:
    assert HOSTILE not in text
    assert "&lt;script&gt;" in text
    assert text.count("</script>") == 1
    assert not re.search(r"<(link|script|img|iframe)[^>]*\s(src|href)=", text)


def test_marked_words_are_those_that_the_model_selects(one: Facts, runs: list[Path]) -> None:
    model = load_model(runs[0])
    texts = (*one.reading.right, *one.reading.wrong, *one.reading.unsure)
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


def test_words_are_counted_over_all_texts(one: Facts, runs: list[Path]) -> None:
    model = load_model(runs[0])
    from rss_rl.data.store import open_prepared

    split = open_prepared(str(runs[0].parent / "data")).split("test")
    counts: dict[str, list[int]] = {}
    for row in range(len(split)):
        sentence = model.explain(split.words(row)[0]).sentences[0]
        for word, kept in zip(sentence.words, sentence.kept, strict=True):
            own = counts.setdefault(word.lower(), [0, 0])
            own[0] += 1
            own[1] += int(kept)
    assert {w.word: [w.count, w.kept] for w in one.reading.words} == counts


def test_a_word_met_once_does_not_lead() -> None:
    words = (WordCount("often", 50, 45), WordCount("once", 1, 1), WordCount("never", 100, 0))
    reading = Reading(1, 1, (), (), (), words)
    assert [word.word for word in words_by_share(reading)] == ["often", "once", "never"]


def text_of(kept: list[int], marked: list[int], words: int) -> ReadText:
    bits = [np.isin(np.arange(words), places) for places in (kept, marked)]
    names = tuple(f"w{place}" for place in range(words))
    return ReadText("x", (names,), (bits[0],), (bits[1],), "a", "a", 0.9)


@pytest.mark.parametrize("words", [3, 40, 900])
def test_pieces_of_a_text_account_for_every_word(words: int) -> None:
    text = text_of([0, 1, words // 2], [1, words - 1], words)
    place = 0
    for piece in marked_text(text, 0):
        if piece.cut:
            place += int(piece.text)
            continue
        for word in piece.text.split(" "):
            assert word == text.words[0][place]
            assert piece.kept == text.kept[0][place]
            place += 1
    assert place == words


def test_the_end_of_a_text_is_cut_like_its_beginning() -> None:
    pieces = marked_text(text_of([50], [], 101), 0)
    assert [(piece.cut, piece.text.count(" ") + 1) for piece in (pieces[0], pieces[-1])] == [
        (True, 1),
        (True, 1),
    ]
    assert [piece.text for piece in pieces if piece.cut] == ["44", "44"]


def test_a_chart_stays_in_its_frame() -> None:
    chart = Chart(
        "A < title", "updates", "share",
        lines=[Line("one", [(0, 0.1), (10, 0.9)], band=[(0.0, 0.2), (0.7, 1.1)])],
        points=[Point(5, 0.5, "a point", 1, 2.0, 0.3)],
    )  # fmt: skip
    svg = ET.fromstring(draw(chart))
    assert "A < title" in svg.attrib["aria-label"]
    names = ("x", "x1", "x2", "cx"), ("y", "y1", "y2", "cy")
    for kind, end in zip(names, (chart.width, chart.height), strict=True):
        places = [float(e.attrib[n]) for e in svg.iter() for n in kind if n in e.attrib]
        assert places
        assert min(places) >= 0
        assert max(places) <= end
    (circle,) = svg.iter("circle")
    assert 66 < float(circle.attrib["cx"]) < chart.width - 24
    assert draw(Chart("none", "x", "y")) == ""


def texts_of(chart: Chart, kind: str) -> list[ET.Element]:
    found = ET.fromstring(draw(chart)).iter("text")
    return [text for text in found if kind in text.attrib["class"].split()]


def test_the_axis_of_curves_ends_at_the_last_update() -> None:
    chart = Chart("t", "updates", "y", lines=[Line("one", [(0, 0.0), (1300, 1.0)])])
    (line,) = ET.fromstring(draw(chart)).iter("polyline")
    assert line.attrib["points"].split()[-1].startswith(f"{chart.width - 24:g},")
    ticks = [float(text.text.replace(",", "")) for text in texts_of(chart, "middle")[:-2]]
    assert max(ticks) <= 1300
    few = Chart("t", "updates", "y", lines=[Line("one", [(0, 0.0), (2, 1.0)])])
    assert [text.text for text in texts_of(few, "middle")[:-2]] == ["0", "1", "2"]


def test_a_curve_has_a_gap_where_nothing_was_measured(
    one: Facts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The classifier does not learn in the second of three phases."""
    updates, learning = list(range(1, 301)), [*range(1, 101), *range(201, 301)]
    logged = {
        "phase/index": Curve(updates, [float((update - 1) // 100) for update in updates]),
        "train/loss": Curve(learning, [1 / update for update in learning]),
        "dev/thresholded/loss": Curve([100, 300], [1.0, 0.5]),
        "reward/total": Curve(updates, [0.0] * 300),
    }
    monkeypatch.setattr("rss_rl.pages.report_charts.read_curves", lambda path: logged)
    *_, reward, loss = (ET.fromstring(svg) for svg in curve_charts(one.groups, None))
    assert len(list(reward.iter("polyline"))) == 1
    before, after, dev = (line.attrib["points"].split() for line in loss.iter("polyline"))
    x = [[float(place.split(",")[0]) for place in line] for line in (before, after, dev)]
    start, end = x[2]  # updates 100 and 300
    assert x[0][-1] == start
    assert x[1][0] >= (start + end) / 2
    assert len(before) + len(after) == 80
    assert not list(loss.iter("circle"))


def test_where_the_last_phase_begins_is_written_within_the_axes() -> None:
    levels = [Level(0, "warm-up", "x"), Level(980, "co-train", "x")]
    chart = Chart("t", "updates", "y", lines=[Line("", [(0, 0.0), (1000, 1.0)])], levels=levels)
    first, last = (t for t in texts_of(chart, "tick") if t.text in ("warm-up", "co-train"))
    assert "end" not in first.attrib["class"]
    assert "end" in last.attrib["class"]
    assert 66 < float(first.attrib["x"]) < float(last.attrib["x"]) <= chart.width - 24


def test_ticks_of_shares_that_lie_close_say_what_they_are() -> None:
    points = [(0, 0.497), (10, 0.504)]
    chart = Chart("t", "x", "y", lines=[Line("", points)], y_format=".0%", shares=True)
    ticks = [float(text.text.rstrip("%")) for text in texts_of(chart, "end")]
    assert np.ptp(np.diff(ticks)) == pytest.approx(0)
    assert len(set(ticks)) > 2


def test_labels_neither_overlap_nor_leave_the_axes() -> None:
    points = [Point(100 + number, 0.0, f"word{number}") for number in range(40)]
    points += [Point(500, 1.0, "alone"), Point(1000, 0.5, "at the right")]
    chart = Chart("t", "x", "y", points=points, levels=[Level(0.02, "asked for")], width=900)
    labels = texts_of(chart, "label")
    assert {"word0", "alone", "at the right"} <= {label.text for label in labels}
    boxes = [
        (x, y - 9, x + 7 * len(label.text), y + 2)
        for label in labels
        for x, y in [(float(label.attrib["x"]), float(label.attrib["y"]))]
    ]
    for number, box in enumerate(boxes):
        assert box[0] >= 66
        assert box[2] <= chart.width
        assert box[3] <= chart.height - 44 + 6
        for other in boxes[:number]:
            apart = box[0] >= other[2] or other[0] >= box[2]
            assert apart or box[1] >= other[3] or other[1] >= box[3]


def test_labels_leave_lines_and_marks_uncovered() -> None:
    """Where there is room: a line's label is written in any case."""
    steps = range(0, 1300, 10)
    lines = [
        Line("all words", [(step, 0.83 + 0.01 * np.sin(step / 40)) for step in steps]),
        Line("kept words", [(step, 0.81 - 0.2 * 0.99**step) for step in steps]),
    ]
    chart = Chart("t", "x", "y", lines=lines, shares=True)
    drawn = ET.fromstring(draw(chart))
    upper, lower = texts_of(chart, "label")
    assert (upper.text, lower.text) == ("— all words", "— kept words")
    assert float(upper.attrib["y"]) < float(lower.attrib["y"])
    places = [
        tuple(map(float, place.split(",")))
        for line in drawn.iter("polyline")
        for place in line.attrib["points"].split()
    ]
    dots = Chart("t", "x", "y", points=[Point(x, 1.0, f"w{x}") for x in range(0, 100, 7)])
    circles = [
        (float(c.attrib["cx"]), float(c.attrib["cy"]))
        for c in ET.fromstring(draw(dots)).iter("circle")
    ]
    for shown, covered in ((chart, places), (dots, circles)):
        labels = texts_of(shown, "label")
        assert labels
        for label in labels:
            left, base = float(label.attrib["x"]), float(label.attrib["y"])
            right = left + 7 * len(label.text)
            assert not [p for p in covered if left < p[0] < right and base - 9 < p[1] < base + 2]


def test_more_groups_than_colours_are_said_to_be_left_out(runs: list[Path]) -> None:
    """Of learning curves; scores and the frontier show all of them."""
    found = gather_facts(runs[::2])
    runs_of = [replace(group, name=f"group-{n}") for n in range(3) for group in found.groups]
    page = report_page(replace(found, groups=tuple(runs_of[:5])))
    assert "Only the first 4 of 5 groups are drawn" in page
    assert "are drawn" not in report_page(replace(found, groups=tuple(runs_of[:4])))


def test_an_unfinished_run_says_so(runs: list[Path], tmp_path: Path) -> None:
    import shutil

    shutil.copytree(runs[0], tmp_path / "unfinished")
    (tmp_path / "unfinished" / "report.json").unlink()
    found = CliRunner().invoke(app, ["report", str(tmp_path / "unfinished"), "--html", "x.html"])
    assert found.exit_code == 2


def test_the_command_writes_it(runs: list[Path], tmp_path: Path) -> None:
    out = tmp_path / "new" / "report.html"
    found = CliRunner().invoke(app, ["report", str(runs[0]), "--html", str(out)])
    assert found.exit_code == 0, found.output
    assert "What was asked" in out.read_text(encoding="utf-8")
    both = CliRunner().invoke(app, ["report", str(runs[0]), "--html", str(out), "--json"])
    assert both.exit_code == 2


def test_in_a_browser(text: str, tmp_path: Path) -> None:
    binary = find_chromium()
    if binary is None:
        pytest.skip("no Chromium is installed: the report is not tried in a browser")
    (tmp_path / "page.html").write_text(text, encoding="utf-8")
    with Browser(binary, tmp_path / "profile") as browser:
        for width in (1280, 360):
            browser.open(tmp_path / "page.html", width=width)
            assert browser.value("document.documentElement.scrollWidth") <= width
        browser.mouse("#theme", click=True)
        theme: Any = browser.value("document.documentElement.dataset.theme")
        assert theme in ("light", "dark")
        assert browser.problems == []
        assert [url for url in browser.requests if not url.startswith("file:")] == []


def test_a_screen_reader_says_what_the_report_shows(one: Facts, text: str, tmp_path: Path) -> None:
    """Charts in words, tables by name, values with what they are of, kept words as such."""
    binary = find_chromium()
    if binary is None:
        pytest.skip("no Chromium is installed: the report is not tried in a browser")
    (tmp_path / "page.html").write_text(text, encoding="utf-8")
    with Browser(binary, tmp_path / "profile") as browser:
        browser.open(tmp_path / "page.html")
        browser.value("document.querySelectorAll('details').forEach(one => { one.open = true; })")
        spoken = browser.spoken()
        browser.key("Tab")
        assert browser.value("document.activeElement.id") == "theme"
        browser.key("Tab")
        assert browser.value("document.activeElement.localName") == "summary"
        browser.key("Enter")
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


def test_reading_takes_no_more_rows_than_there_are(runs: list[Path]) -> None:
    reading = read_split(runs[0], "dev")
    assert (reading.rows, reading.of) == (24, 24)
