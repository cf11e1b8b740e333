"""ERASER's other tasks and HateXplain: small files in their formats."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from rss_rl.data.sources import BadRow, RawExample, SourceRequest, named_source

ARTICLE = "the fox is red .\nit eats\xa0and sleeps at night .\n\nfoxes are shy"
"""Three sentences of 5, 6 and 3 tokens; a token holds a space that parts none."""
CLASSES = {
    "eraser-multirc": ("False", "True"),
    "eraser-fever": ("SUPPORTS", "REFUTES"),
    "eraser-boolq": ("False", "True"),
    "eraser-evidence": (
        "significantly decreased",
        "no significant difference",
        "significantly increased",
    ),
    "eraser-cos-e": ("A", "B", "C", "D", "E"),
}


def rows_of(name: str, folder: Path, split: str = "train", **options: str) -> list[Any]:
    return list(named_source(name, SourceRequest(folder, 0, options)).read(split))


def marked(example: RawExample) -> list[list[int]]:
    assert example.rationale is not None
    return [[i for i, bit in enumerate(bits) if bit] for bits in example.rationale]


def lines(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8"
    )


def span(document: str, start: int, end: int, text: str | None = None) -> dict[str, Any]:
    return {"docid": document, "start_token": start, "end_token": end, "text": text}


def eraser(
    folder: Path,
    evidences: Sequence[Sequence[Mapping[str, Any]]],
    label: str,
    documents: Mapping[str, str],
    *,
    files: bool = False,
    **values: Any,
) -> Path:
    """A dataset of one row in each split."""
    row = {"annotation_id": "r", "classification": label, "evidences": evidences, **values}
    for name in ("train", "val", "test"):
        lines(folder / f"{name}.jsonl", [row])
    if files:
        (folder / "docs").mkdir()
        for name, text in documents.items():
            (folder / "docs" / name).write_text(text, encoding="utf-8")
    else:
        listed = [{"docid": name, "document": text} for name, text in documents.items()]
        lines(folder / "docs.jsonl", listed)
    return folder


class TestEraser:
    @pytest.mark.parametrize("files", [True, False])
    @pytest.mark.parametrize("name", CLASSES)
    def test_a_document_and_a_query(self, tmp_path: Path, name: str, files: bool) -> None:
        evidences = [[span("fox", 5, 11, "it eats\xa0and sleeps at night .")], [span("fox", 5, 7)]]
        label = CLASSES[name][-1]
        documents = {"other": "nothing", "fox": ARTICLE}
        eraser(tmp_path, evidences, label, documents, files=files, query="is it  shy ? [sep] no")
        (row,) = rows_of(name, tmp_path, "dev")
        assert row.texts[0] == tuple(ARTICLE.replace("\n", " ").replace("  ", " ").split(" "))
        assert row.texts[1] == ("is", "it", "shy", "?", "[sep]", "no")
        assert (row.id, row.label) == ("r", label)
        assert marked(row) == [[5, 6, 7, 8, 9, 10], []]
        source = named_source(name, SourceRequest(tmp_path))
        assert source.label_spec().names == CLASSES[name]  # type: ignore[union-attr]

    def test_whole_sentences(self, tmp_path: Path) -> None:
        folder = eraser(tmp_path, [[span("fox", 4, 7)]], "True", {"fox": ARTICLE}, query="shy ?")
        assert marked(rows_of("eraser-boolq", folder)[0])[0] == [4, 5, 6]
        (row,) = rows_of("eraser-boolq", folder, evidence="sentences")
        assert marked(row)[0] == list(range(11))

    def test_premise_and_hypothesis(self, tmp_path: Path) -> None:
        documents = {"r_hypothesis": "a fox sleeps", "r_premise": "an animal is in bed"}
        evidences = [[span("r_hypothesis", 2, 3, "sleeps"), span("r_premise", 4, 5, "bed")]]
        folder = eraser(tmp_path / "esnli", evidences, "neutral", documents, query="").parent
        (row,) = rows_of("eraser-e-snli", folder)
        assert [" ".join(text) for text in row.texts] == ["an animal is in bed", "a fox sleeps"]
        assert marked(row) == [[4], [2]]

    @pytest.mark.parametrize(
        ("name", "evidences", "reason"),
        [
            ("eraser-fever", [[span("cat", 0, 1)]], "there is no document 'cat' in"),
            ("eraser-fever", [[span("fox", 13, 15)]], "outside the 14 tokens of 'fox'"),
            ("eraser-fever", [[span("fox", 1, 2, "cat")]], "has another text than its row"),
            ("eraser-e-snli", [[span("fox", 0, 1)]], "in 'fox', which is neither r_premise nor"),
            ("eraser-e-snli", [], "there is no document 'r_premise'"),
        ],
    )
    def test_a_row_that_cannot_be_used(
        self, tmp_path: Path, name: str, evidences: Any, reason: str
    ) -> None:
        (row,) = rows_of(name, eraser(tmp_path, evidences, "REFUTES", {"fox": ARTICLE}, query="a"))
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
        assert (normal.id, normal.label, marked(normal)) == ("x", "normal", [[]])
        assert (second.label, marked(second)) == ("offensive", [[1, 2]])
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
            ([], "post 'y': "),
        ],
    )
    def test_a_post_that_cannot_be_used(self, tmp_path: Path, wrong: Any, reason: str) -> None:
        posts = {"x": post("nnn"), "y": wrong}
        _, row = rows_of("hatexplain", hatexplain(tmp_path, posts, ["x", "y"]), "test")
        assert isinstance(row, BadRow)
        assert reason in row.reason
        assert (Path(row.file).name, row.row) == ("dataset.json", 2)
