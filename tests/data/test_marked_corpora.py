"""ERASER's other tasks, e-SNLI, HateXplain and BeerAdvocate: small files in their formats."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from rss_rl.data.prepare import prepare
from rss_rl.data.sources import BadRow, RawExample, SourceRequest, named_source
from rss_rl.data.store import open_prepared
from rss_rl.errors import DataError

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

    @pytest.mark.parametrize("line", ["[]", '{"docid": "a"}', '{"docid": 1, "document": ""}', "x"])
    def test_a_line_that_is_no_document(self, tmp_path: Path, line: str) -> None:
        eraser(tmp_path, [], "True", {"fox": ARTICLE}, query="a")
        with (tmp_path / "docs.jsonl").open("a", encoding="utf-8") as file:
            file.write(f"\n{line}\n")
        with pytest.raises(DataError, match=r"docs.jsonl, row 3: is not a JSON object"):
            rows_of("eraser-boolq", tmp_path)

    def test_the_same_from_files_and_lines_of_many_documents(self, tmp_path: Path) -> None:
        """Documents are found by where they stand, whatever the length of those before them."""
        documents = {f"d{i}": " ".join(["é"] * (i % 7 + 1) + [str(i)]) for i in range(300)}
        rows = [
            {"annotation_id": name, "classification": "A", "query": "q", "evidences": []}
            for name in documents
        ]
        for files in (True, False):
            folder = tmp_path / str(files)
            eraser(folder, [], "A", documents, files=files)
            absent = [rows[0] | {"annotation_id": f"e{i}"} for i in range(20)]
            lines(folder / "val.jsonl", absent)
            found = rows_of("eraser-cos-e", folder, "dev")
            assert [isinstance(row, BadRow) for row in found] == [True] * 20
            lines(folder / "train.jsonl", rows)
        both = [rows_of("eraser-cos-e", tmp_path / str(files)) for files in (True, False)]
        assert [row.texts for row in both[0]] == [row.texts for row in both[1]]
        assert [row.texts[0][-1] for row in both[1]] == [str(i) for i in range(300)]


HEAD = (
    "pairID,gold_label,Sentence1,Sentence2,Explanation_1,WorkerId,Sentence1_marked_1,"
    "Sentence2_marked_1,Sentence1_Highlighted_1,Sentence2_Highlighted_1"
)
FILES = ("esnli_train_1.csv", "esnli_train_2.csv", "esnli_dev.csv", "esnli_test.csv")


def e_snli(folder: Path, marks: Sequence[str] = ("3", '"1,2"'), label: str = "neutral") -> Path:
    """A pair in each file; `marks` of premise and hypothesis, in dev and test of more people."""
    texts = "A fox has slept.,It is tired."
    for number, name in enumerate(FILES):
        more = name in FILES[2:]
        head = HEAD + ",Sentence1_Highlighted_2,Sentence2_Highlighted_2" * more
        row = f"p{number},{label},{texts},why,w,a,b,{','.join(marks)}" + ",0,{}" * more
        (folder / name).write_text(f"{head}\n{row}\n", encoding="utf-8")
    return folder


class TestESNLI:
    def test_words_are_cut_and_marks_follow(self, tmp_path: Path) -> None:
        first, second = rows_of("e-snli", e_snli(tmp_path))
        assert first.texts == (("A", "fox", "has", "slept", "."), ("It", "is", "tired", "."))
        assert marked(first) == [[3], [1, 2]]
        assert (first.id, second.id, second.label) == ("p0", "p1", "neutral")
        assert Path(second.file).name == FILES[1]

    def test_marks_of_several_people_are_joined(self, tmp_path: Path) -> None:
        (row,) = rows_of("e-snli", e_snli(tmp_path, ("{}", "2")), "dev")
        assert marked(row) == [[0], [2]]

    @pytest.mark.parametrize(
        ("marks", "reason"),
        [
            (("4", "{}"), "word 4 of Sentence1 is marked, which has 4 words"),
            (("-1", "{}"), "word -1 of Sentence1"),
            (("{}", "one"), "a Sentence2_Highlighted is not a list of numbers"),
        ],
    )
    def test_a_row_that_cannot_be_used(
        self, tmp_path: Path, marks: Sequence[str], reason: str
    ) -> None:
        row, _ = rows_of("e-snli", e_snli(tmp_path, marks))
        assert isinstance(row, BadRow)
        assert reason in row.reason
        assert (Path(row.file).name, row.row) == (FILES[0], 2)
        assert row.remedy

    def test_a_folder_or_file_that_lacks_something(self, tmp_path: Path) -> None:
        (e_snli(tmp_path) / FILES[0]).write_text("pairID,gold_label\n1,neutral\n", encoding="utf-8")
        with pytest.raises(DataError, match="there is no column 'Sentence1'"):
            rows_of("e-snli", tmp_path)
        (tmp_path / FILES[1]).unlink()
        with pytest.raises(DataError, match=r"there is no esnli_train_2.csv\. Put the .csv files"):
            rows_of("e-snli", tmp_path)


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

    def test_more_annotators_than_a_token_has_bits(self, tmp_path: Path) -> None:
        posts = {name: post("h" * n, ["0100"] * n) for name, n in (("x", 31), ("y", 32))}
        posts["z"] = post("nnn")
        source = named_source("hatexplain", SourceRequest(hatexplain(tmp_path, posts, list("xyz"))))
        with pytest.raises(DataError, match=r"row 2: .* others than the 31 annotators .*Leave"):
            prepare(source, tmp_path / "out")
        manifest = prepare(source, tmp_path / "out", skip_bad_rows=True)
        assert (manifest.splits["train"].rows, manifest.splits["train"].bad_rows) == (2, 1)
        batch = open_prepared(tmp_path / "out").split("train").batch([0])
        assert batch.annotations is not None
        assert batch.annotations.tolist() == [[0, 2**31 - 1, 0, 0]]

    def test_a_post_that_is_not_there(self, tmp_path: Path) -> None:
        _, row = rows_of("hatexplain", hatexplain(tmp_path, {"x": post("nnn")}, ["x", "y"]))
        assert row.reason == "dataset.json has no post 'y'"
        assert (Path(row.file).name, row.row) == ("post_id_divisions.json", 2)

    @pytest.mark.parametrize("text", ["[]", "{", '{"train": 1}'])
    def test_files_that_are_something_else(self, tmp_path: Path, text: str) -> None:
        hatexplain(tmp_path, {}, [])
        (tmp_path / "post_id_divisions.json").write_text(text, encoding="utf-8")
        with pytest.raises(DataError, match="Use the files of HateXplain"):
            rows_of("hatexplain", tmp_path)


def beer(folder: Path, text: Sequence[str], rows: Sequence[Mapping[str, Any]], at: int = 0) -> Path:
    for part in ("train", "heldout"):
        with gzip.open(folder / f"reviews.aspect{at}.{part}.txt.gz", "wt", encoding="utf-8") as f:
            f.write("".join(line + "\n" for line in text))
    lines(folder / "annotations.json", rows)
    return folder


SCORES = [0.8, 0.5, 0.3, 0.1, 0.9]
REVIEW = {
    "x": ["clear", "gold", ",", "smells", "of", "hay"],
    "y": SCORES,
    "0": [[0, 2]],
    "2": [[4, 6], [5, 5]],
}
TEXT = "0.80 0.50 0.30 0.10 0.90\tclear gold , smells"


class TestBeerAdvocate:
    @pytest.mark.parametrize(
        ("aspect", "at", "label", "bits"),
        [("appearance", 0, "positive", [0, 1]), ("palate", 2, "negative", [4, 5])],
    )
    def test_classes_and_ranges_of_an_aspect(
        self, tmp_path: Path, aspect: str, at: int, label: str, bits: list[int]
    ) -> None:
        folder = beer(tmp_path, [TEXT], [REVIEW], at)
        (row,) = rows_of("beer-advocate", folder, aspect=aspect)
        assert (row.texts, row.label) == ((("clear", "gold", ",", "smells"),), label)
        assert row.rationale is None
        (row,) = rows_of("beer-advocate", folder, "test", aspect=aspect)
        assert (row.label, marked(row)) == (label, [bits])

    def test_reviews_in_between_are_left_out_or_scored(self, tmp_path: Path) -> None:
        folder = beer(tmp_path, [TEXT], [REVIEW | {"1": []}], 1)
        (row,) = rows_of("beer-advocate", folder, aspect="smell")
        assert row.by_convention
        for split in ("train", "test"):
            (row,) = rows_of("beer-advocate", folder, split, aspect="smell", labels="score")
            assert row.label == 0.5

    @pytest.mark.parametrize(
        ("change", "reason"),
        [
            ({"0": [[0, 7]]}, "'0' holds [0, 7], not a range [start, end] of 6 words"),
            ({"0": [3]}, "Input should be a valid tuple"),
            ({"0": None}, "Input should be a valid list"),
            ({"x": "clear gold"}, "x: Input should be a valid list"),
            ({"y": [0.8]}, "y: List should have at least 5 items"),
            ({"y": ["high"] * 5}, "y.0: Input should be a valid number"),
        ],
    )
    def test_a_row_that_cannot_be_used(
        self, tmp_path: Path, change: Mapping[str, Any], reason: str
    ) -> None:
        (row,) = rows_of("beer-advocate", beer(tmp_path, [TEXT], [REVIEW | change]), "test")
        assert isinstance(row, BadRow)
        assert reason in row.reason
        assert (Path(row.file).name, row.row) == ("annotations.json", 1)
        assert row.remedy

    @pytest.mark.parametrize("text", ["0.8 0.5 0.3 0.1 0.9", "0.8 0.5\tfew", "a b c d e\tf"])
    def test_a_line_that_cannot_be_used(self, tmp_path: Path, text: str) -> None:
        good, row = rows_of("beer-advocate", beer(tmp_path, [TEXT, text], [REVIEW]), "dev")
        assert isinstance(good, RawExample)
        assert row.row == 2
        assert row.reason.startswith("y")


def test_marks_of_the_test_split_alone_are_prepared(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    low = TEXT.replace("0.80", "0.20")
    folder = beer(tmp_path / "in", [TEXT, low], [REVIEW])
    prepare(named_source("beer-advocate", SourceRequest(folder)), tmp_path / "out")
    prepared = open_prepared(tmp_path / "out")
    assert prepared.split("train").batch([0]).rationale is None
    batch = prepared.split("test").batch([0])
    assert batch.rationale is not None
    assert batch.rationale[0][0].tolist() == [True, True, False, False, False, False]
