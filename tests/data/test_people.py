"""ERASER's movies, HateXplain and Yelp-HAT: spans and maps beside the tokens, and faulty rows."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rss_rl.data.prepare import prepare
from rss_rl.data.sources import BadRow, RawExample, SourceRequest, named_source
from rss_rl.data.store import open_prepared

REVIEW = "a dull , slow film .\nthe fox was not bad"


def rows_of(name: str, folder: Path, split: str = "train", **options: str) -> list[Any]:
    return list(named_source(name, SourceRequest(folder, 0, options)).read(split))


def span(start: int, end: int, text: str | None = None, docid: str = "one") -> dict[str, Any]:
    words = REVIEW.split()[start:end]
    given = " ".join(words) if text is None else text
    return {"docid": docid, "start_token": start, "end_token": end, "text": given}


def movies(folder: Path, *spans: object, **values: object) -> Path:
    """A dataset of one review in each split."""
    (folder / "docs").mkdir(parents=True, exist_ok=True)
    (folder / "docs" / "one").write_text(REVIEW, encoding="utf-8")
    row = {"annotation_id": "one", "classification": "NEG", "evidences": [[s] for s in spans]}
    for name in ("train", "val", "test"):
        (folder / f"{name}.jsonl").write_text(json.dumps(row | values) + "\n", encoding="utf-8")
    return folder


class TestMovies:
    def test_spans_become_bits(self, tmp_path: Path) -> None:
        folder = movies(tmp_path, span(9, 11), span(1, 4), span(7, 7), span(2, 4))
        (row,) = rows_of("eraser-movies", folder, "dev")
        assert row.texts == (tuple(REVIEW.split()),)
        assert row.label == "negative"
        assert [i for i, bit in enumerate(row.rationale[0]) if bit] == [1, 2, 3, 9, 10]
        assert (row.id, row.row) == ("one", 1)

    @pytest.mark.parametrize(
        ("spans", "reason"),
        [
            ([span(0, 1, docid="cat")], "cannot be read"),
            ([span(0, 1, docid="../one")], "which is not the name of one file"),
            ([span(0, 1), span(0, 1, docid="cat")], "its spans lie in cat, one"),
            ([span(9, 12)], "outside the 11 tokens of 'one'"),
            ([span(1, 2, "cat")], "are not its text"),
        ],
    )
    def test_a_row_that_cannot_be_used(self, tmp_path: Path, spans: Any, reason: str) -> None:
        (row,) = rows_of("eraser-movies", movies(tmp_path, *spans))
        assert isinstance(row, BadRow)
        assert reason in row.reason
        assert row.error().where == f"{tmp_path / 'train.jsonl'}, row 1"
        assert row.remedy


def post(labels: str, maps: Sequence[str] = (), words: str = "so a b c") -> dict[str, Any]:
    """`labels` by their first letter, `maps` as texts of 0 and 1."""
    full = {"h": "hatespeech", "o": "offensive", "n": "normal"}
    people = [
        {"label": full.get(letter, letter), "annotator_id": k, "target": ["None"]}
        for k, letter in enumerate(labels)
    ]
    bits = [[int(bit) for bit in one] for one in maps]
    return {"annotators": people, "rationales": bits, "post_tokens": words.split()}


def hatexplain(folder: Path, posts: Mapping[str, Any], ids: Sequence[str]) -> Path:
    (folder / "dataset.json").write_text(json.dumps(posts), encoding="utf-8")
    divisions = {"train": ids, "val": ids, "test": ids}
    (folder / "post_id_divisions.json").write_text(json.dumps(divisions), encoding="utf-8")
    return folder


class TestHateXplain:
    def test_labels_of_the_majority_and_marks_of_anyone(self, tmp_path: Path) -> None:
        posts = {
            "x": post("nnn"),
            "y": post("oho", ["0100", "0110"]),
            "z": post("hon", ["1000", "1000"]),
        }
        normal, second, undecided = rows_of("hatexplain", hatexplain(tmp_path, posts, list("xyz")))
        assert (normal.id, normal.label, normal.annotations) == ("x", "normal", (0, 0, 0, 0))
        assert (second.label, second.rationale) == ("offensive", ((False, True, True, False),))
        assert second.annotations == (0, 3, 2, 0)
        assert second.row == 2
        assert undecided.by_convention

    @pytest.mark.parametrize(
        ("wrong", "reason"),
        [
            (post("hho", ["010"]), "a map does not have a 0 or 1 for each word"),
            (post("hho", ["0102"]), "rationales.0.3"),
            (post("hxo"), "annotators.1.label"),
            (post("", ["0100"]), "annotators"),
            ([], "Input should be a valid dictionary"),
        ],
    )
    def test_a_post_that_cannot_be_used(self, tmp_path: Path, wrong: Any, reason: str) -> None:
        posts = {"x": post("nnn"), "y": wrong}
        _, row = rows_of("hatexplain", hatexplain(tmp_path, posts, ["x", "y"]), "test")
        assert isinstance(row, BadRow)
        assert reason in row.reason
        assert (Path(row.file).name, row.row) == ("dataset.json", 2)


def hat_row(text: str, marked: Sequence[int], label: int = 0) -> dict[str, Any]:
    words = text.split()
    bits = [int(i in marked) for i in range(len(words))]
    return {"label": label, "text": text, "tokens": words, "mask": bits}


def hat(folder: Path, rows: Sequence[dict[str, Any]]) -> Path:
    folder.mkdir(exist_ok=True)
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    (folder / "yelp_hat.jsonl").write_text(lines, encoding="utf-8")
    return folder


def everything(folder: Path, **options: str) -> list[Any]:
    splits = ("train", "dev", "test")
    return [row for split in splits for row in rows_of("yelp-hat", folder, split, **options)]


class TestYelpHat:
    def test_maps_of_a_review_are_joined(self, tmp_path: Path) -> None:
        text = "Very  slow , not good."
        folder = hat(tmp_path, [hat_row(text, who) for who in ((0, 1), (1, 3), (1,))])
        (row,) = everything(folder)
        assert row.texts == (("Very", "slow", ",", "not", "good."),)
        assert row.annotations == (1, 7, 0, 2, 0)
        assert row.rationale == ((True, True, False, True, False),)

    def test_the_authors_files(self, tmp_path: Path) -> None:
        (tmp_path / "raw_data").mkdir()
        spans = (
            '<span class=""active"">Very</span> <span class="""">slow,</span> <span>is</span> '
            '<span data-x=""1"" class=""active"">it?</span> <span></span>'
        )
        header = "Input.label,Input.text,Answer.Q1Answer,Answer.html_output\n"
        row = f'1,"Very slow, is it?",yes,"{spans}"\n'
        short = '1,"Very slow, is it?",yes,"{}"\n'
        path = tmp_path / "raw_data" / "ham_part1(50words).csv"
        path.write_text(header + row + short, encoding="utf-8")
        good = [r for r in everything(tmp_path) if isinstance(r, RawExample)]
        bad = [r for r in everything(tmp_path) if isinstance(r, BadRow)]
        assert [(r.label, r.annotations) for r in good] == [("positive", (1, 0, 0, 1))]
        assert [(r.row, r.reason) for r in bad] == [(3, "the map has 0 words, the review 4")]

    @pytest.mark.parametrize(
        ("change", "reason"),
        [
            ({"mask": [0, 1]}, "the map has 2 words, the review 3"),
            ({"mask": [0, 0, 0]}, "marks no word"),
            ({"mask": "010"}, "mask: Input should be a valid list"),
            ({"label": 1}, "the label or words differ from those in row 1"),
        ],
    )
    def test_a_row_that_cannot_be_used(
        self, tmp_path: Path, change: dict[str, Any], reason: str
    ) -> None:
        rows = [hat_row("it is slow", [2]), hat_row("it is slow", [2]) | change]
        bad = [row for row in everything(hat(tmp_path, rows)) if isinstance(row, BadRow)]
        assert [reason in row.reason for row in bad] == [True]
        assert bad[0].row == 2

    def test_every_review_is_in_one_split_by_the_seed(self, tmp_path: Path) -> None:
        rows = [hat_row(f"review number {i}", [i % 3]) for i in range(200)]
        folder = hat(tmp_path, rows)
        split = {s: [r.texts for r in rows_of("yelp-hat", folder, s)] for s in ("train", "test")}
        assert len(everything(folder)) == 200
        assert 110 < len(split["train"]) < 170
        assert not set(split["train"]) & set(split["test"])
        other = named_source("yelp-hat", SourceRequest(folder, 1, {})).read("test")
        assert [r.texts for r in other if isinstance(r, RawExample)] != split["test"]


def test_maps_are_kept_with_the_prepared_data(tmp_path: Path) -> None:
    texts = [f"number {i} was {'so ' * (i % 3)}slow" for i in range(60)]
    rows = [hat_row(t, who, i % 2) for i, t in enumerate(texts) for who in ((1,), (0, 2))]
    prepare(named_source("yelp-hat", SourceRequest(hat(tmp_path / "in", rows))), tmp_path / "out")
    train = open_prepared(tmp_path / "out").split("train")
    batch = train.batch(range(len(train)))
    assert batch.rationale is not None
    assert batch.annotations is not None
    for row, valid in enumerate(batch.valid[0]):
        expected = [2, 1, 2] + [0] * (len(valid) - 3)
        assert batch.annotations[row].tolist() == expected
        assert batch.rationale[0][row].tolist() == [bit > 0 for bit in expected]
        assert train.words(row)[0] == tuple(texts[int(train.words(row)[0][1])].split())
    twice = batch.repeat(2).annotations
    assert np.array_equal(twice, np.concatenate([batch.annotations] * 2))  # type: ignore[arg-type]
