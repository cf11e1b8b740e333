"""`rss-rl export`, `predict` and `explain` as they are typed."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path

import pytest
from invoking import invoke
from readers import REVIEWS

from rss_rl.data.store import open_prepared


def typed(*arguments: object, code: int = 0) -> str:
    """The output of a command that ends with `code`."""
    done = invoke(arguments)
    assert done.exit_code == code, (done.output, done.exception)
    return done.output


def test_from_a_run_to_a_page(run: Path, tmp_path: Path) -> None:
    said = typed("export", run, "--out", tmp_path / "model")
    assert re.search(rf"wrote {re.escape(str(tmp_path / 'model'))}, 0\.\d MB", said)
    source = tmp_path / "in.jsonl"
    source.write_text("".join(json.dumps({"review": text}) + "\n" for text in REVIEWS))
    scored = tmp_path / "scored.csv"
    said_too = typed("predict", tmp_path / "model", "--input", source, "--output", scored)
    assert f"wrote {scored}: 1 file, 3 rows" in said_too
    assert len(scored.read_text().splitlines()) == 4
    page = tmp_path / "page.html"
    typed("explain", run, REVIEWS[2], "--out", page)
    assert '"unseen"' in page.read_text()
    selected = json.loads(typed("select", run, "w1 w2 w3 unheard w4", "--share", "0.2", "--json"))
    (words,) = selected["sentences"]
    assert [word["head"] or word["dependent"] for word in words].count(True) == 1
    assert selected["prediction"] in selected["class_probabilities"]
    asked = ("--split", "dev", "--mode", "sampled", "--which", "latest", "--json")
    (scores,) = json.loads(typed("evaluate", run, *asked)).values()
    assert list(scores) == ["sampled"]
    shown = typed("evaluate", run, "--split", "dev", "--mode", "thresholded", "--which", "latest")
    assert "Do the words decide?" in shown


def test_standard_input_is_a_text_a_line(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = b'warm, "film"\n{"text": "dull"}\n'
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(given)))
    scored = tmp_path / "scored.jsonl"
    typed("predict", run, "--input", "-", "--output", scored)
    rows = [json.loads(line) for line in scored.read_text().splitlines()]
    assert [row["text"] for row in rows] == ['warm, "film"', "dull"]


def test_a_labelled_file_is_scored_as_the_split_that_it_holds(run: Path, tmp_path: Path) -> None:
    prepared = open_prepared(run.parent / "data")
    names, test = prepared.labels.names, prepared.split("test")
    labels = test.batch(range(len(test))).labels.tolist()
    rows = [
        {"review": list(test.words(row)[0]), "stars": names[label]}
        for row, label in enumerate(labels)
    ]
    source = tmp_path / "new.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    named = ("--input", source, "--text", "review", "--label", "stars")
    (found,) = json.loads(typed("evaluate", run, *named, "--json")).values()
    (expected,) = json.loads(typed("evaluate", run, "--json")).values()
    assert found.keys() == expected.keys()
    for mode, scores in found.items():
        assert scores == pytest.approx({name: expected[mode][name] for name in scores}, abs=1e-5)
        assert "accuracy" in scores
    kept = json.loads((run / "evaluated.json").read_text())
    assert kept["new.jsonl"]["scores"] == found
    source.write_text(json.dumps(rows[0] | {"stars": "unheard"}) + "\n")
    assert "new.jsonl, row 1" in typed("evaluate", run, *named, code=2)
    assert "--label" in typed("evaluate", run, "--input", source, code=2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("explain", "a", "pair"), "has 2 text(s) where the task has 1"),
        (("select", "a", "pair"), "has 2 text(s) where the task has 1"),
        (("predict", "--input", __file__, "--output", "out.txt"), "ending in '.txt'"),
        (("export", "--which", "99"), "99"),
    ],
    ids=str,
)
def test_what_cannot_be_done_is_said(arguments: tuple[str, ...], message: str, run: Path) -> None:
    command, *rest = arguments
    assert message in typed(command, run, *rest, code=2)
