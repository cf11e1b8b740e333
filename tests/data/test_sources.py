"""SICK, SNLI and tables as streams of raw examples."""

from __future__ import annotations

import csv
import gzip
import io
import json
import math
import os
import sys
import unicodedata
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given

from rss_rl.api.prepare import prepare
from rss_rl.data.checks import LabelChecker
from rss_rl.data.column_files import Columns, column_files
from rss_rl.data.corpora.cuts import cut_texts
from rss_rl.data.manifest import Manifest
from rss_rl.data.sources import BadRow, RawExample, Source, SourceRequest, named_source
from rss_rl.data.states import stored_states
from rss_rl.data.vectors import check_vectors
from rss_rl.errors import DataError, StorageError
from rss_rl.types import LabelSpec

Writer = Callable[[Path, Sequence[object]], Path]
REVIEW = Columns(("review",), "stars", "key")


def examples(source: Source, split: str) -> list[RawExample]:
    rows = list(source.read(split))
    assert not [row for row in rows if isinstance(row, BadRow)]
    return [row for row in rows if isinstance(row, RawExample)]


def test_sick_of_the_task(sick_folder: Path) -> None:
    source = named_source("sick-relatedness", SourceRequest(sick_folder))
    train = examples(source, "train")
    assert [e.label for e in train] == ["4.7", "5", "1.25"]
    assert train[0].texts == ("A dog isn't barking", 'The "big" dog barks, loudly')
    assert (train[0].id, train[0].row) == ("7", 2)
    assert source.labels == LabelSpec("score", low=1, high=5)
    source = named_source("sick-entailment", SourceRequest(sick_folder))
    assert [e.label for e in examples(source, "train")] == [
        "neutral",
        "entailment",
        "contradiction",
    ]
    assert examples(source, "dev")[0].id == "4"
    assert examples(source, "test")[0].id == "5"


def test_sick_of_the_full_release(tmp_path: Path) -> None:
    header = "pair_ID\tsentence_A\tsentence_B\tentailment_label\trelatedness_score\tSemEval_set"
    rows = [
        "1\ta b\tc\tNEUTRAL\t2\tTRAIN",
        "2\td\te\tENTAILMENT\t5\tTEST",
        "3\tf\tg\tNEUTRAL\t1\tTRIAL",
    ]
    (tmp_path / "SICK.txt").write_text("\n".join([header, *rows]) + "\n")
    source = named_source("sick-entailment", SourceRequest(tmp_path))
    got = {split: [(e.id, e.label) for e in examples(source, split)] for split in source.splits}
    assert got == {
        "train": [("1", "neutral")],
        "dev": [("3", "neutral")],
        "test": [("2", "entailment")],
    }


@pytest.mark.parametrize(
    "names",
    [
        ("snli_1.0_train.jsonl", "snli_1.0_dev.jsonl", "snli_1.0_test.jsonl"),
        ("train_25k.jsonl", "dev.jsonl", "test.jsonl"),
    ],
)
def test_snli(tmp_path: Path, names: tuple[str, ...], write_jsonl: Writer) -> None:
    pair = {"sentence1": "A man sits.", "sentence2": "A man rests.", "pairID": "p1"}
    for name in names:
        write_jsonl(
            tmp_path / name,
            [
                pair | {"gold_label": "neutral", "annotator_labels": ["neutral"]},
                pair | {"gold_label": "-"},
            ],
        )
    source = named_source("snli", SourceRequest(tmp_path))
    for split in ("train", "dev", "test"):
        first, second = source.read(split)
        assert isinstance(first, RawExample)
        assert (first.texts, first.label) == (("A man sits.", "A man rests."), "neutral")
        assert isinstance(second, BadRow)
        assert second.by_convention


def test_unknown_names_and_options_are_refused(sick_folder: Path) -> None:
    with pytest.raises(DataError, match="did you mean 'sick-relatedness'"):
        named_source("sick-relatednes", SourceRequest())
    with pytest.raises(DataError, match="unknown option 'size'"):
        named_source("sick-entailment", SourceRequest(sick_folder, options={"size": "1"}))


def write_table(path: Path, rows: list[dict[str, object]]) -> Path:
    kind = path.name.lower().removesuffix(".gz").rpartition(".")[2]
    if kind == "parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
        return path
    stream = io.StringIO(newline="")
    if kind == "jsonl":
        stream.writelines(json.dumps(row) + "\n" for row in rows)
    else:
        writer = csv.DictWriter(stream, list(rows[0]), delimiter="\t" if kind == "tsv" else ",")
        writer.writeheader()
        writer.writerows(rows)
    content = stream.getvalue().encode()
    path.write_bytes(gzip.compress(content) if path.suffix.lower() == ".gz" else content)
    return path


@pytest.mark.parametrize("ending", ["csv", "TSV", "jsonl", "PARQUET", "csv.GZ", "JSONL.gz"])
def test_all_formats_of_a_table_give_the_same_rows(
    tmp_path: Path, ending: str, reviews: list[dict[str, object]]
) -> None:
    reviews[3]["review"] = 'He said: "no,\nnever".\tThen left'
    source = column_files([write_table(tmp_path / f"r.{ending}", reviews)], REVIEW)
    got = {e.id: e for split in source.splits for e in examples(source, split)}
    assert set(got) == {f"r{i}" for i in range(60)}
    for row in reviews:
        example = got[str(row["key"])]
        assert example.texts == (row["review"],)
        assert example.label == str(row["stars"])


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(-1, 3)), max_size=200), st.integers(0, 9))
def test_a_cut_parts_no_copies_and_leaves_every_class_in_train(
    rows: list[tuple[int, int]], seed: int
) -> None:
    """Whatever copies there are, and rows that cannot be used (-1), which train reports."""
    keys, classes = np.array(rows, np.int64).reshape(-1, 2).T
    split = cut_texts(keys.astype(np.uint64), classes, {"train": 6, "dev": 3, "test": 1}, seed)
    for key in set(keys):
        assert len({*split[(keys == key) & (classes >= 0)]}) < 2
    assert {*classes[classes >= 0]} == {*classes[(classes >= 0) & (split == 0)]}
    assert not split[classes < 0].any()
    usable = int((classes >= 0).sum())
    for place, share in ((1, 0.3), (2, 0.1)):
        own = split == place
        assert own.sum() <= max(1, share * usable + 0.5) or len({*keys[own]}) == 1


def test_copies_of_a_text_are_in_one_split(tmp_path: Path) -> None:
    ways = (str, str.upper, partial(unicodedata.normalize, "NFD"), " {}\u200b\n".format)
    rows = [
        {"review": way(f"th\xe9 {i}"), "stars": i % 2, "key": str(i)}
        for i in range(500)
        for way in ways
    ]
    path = write_table(tmp_path / "r.parquet", rows)

    def ids(seed: int) -> list[list[str]]:
        source = column_files([path], REVIEW, seed=seed)
        return [[e.id for e in examples(source, split)] for split in source.splits]

    found = ids(0)
    assert [len(split) for split in found] == [1600, 200, 200]
    assert not set(found[0]) & {*found[1], *found[2]} | set(found[1]) & set(found[2])
    assert ids(0) == found
    assert ids(1) != found


def test_splits_have_texts_with_as_many_copies() -> None:
    keys = np.repeat(np.arange(900), np.tile([1, 2, 6], 300))
    split = cut_texts(keys.astype(np.uint64), np.zeros(len(keys), int), {"train": 8, "dev": 2}, 0)
    texts = np.array([split[keys == key][0] for key in range(900)])
    assert [int(texts[first::3].sum()) for first in range(3)] == pytest.approx([60] * 3, abs=2)


@pytest.mark.parametrize("texts", range(3, 60, 7))
def test_a_small_table_has_all_splits(tmp_path: Path, texts: int) -> None:
    rows = [{"review": f"text {i}", "stars": i % 2} for i in range(texts)] * 2
    path = write_table(tmp_path / "r.csv", rows)
    for seed in range(5):
        source = column_files([path], Columns(("review",), "stars"), seed=seed)
        sizes = [len(examples(source, split)) for split in source.splits]
        assert sum(sizes) == 2 * texts
        assert sizes[1:] == pytest.approx([texts / 5, texts / 5], abs=2)
        assert all(sizes) == (texts > 3), "two texts are for training, so that it has both classes"


def test_splits_with_files_of_their_own(tmp_path: Path, reviews: list[dict[str, object]]) -> None:
    train, dev, test = (write_table(tmp_path / f"{n}.csv", reviews) for n in ("a", "b", "c"))
    source = column_files([train, train], REVIEW, dev=dev, test=test)
    assert [len(examples(source, split)) for split in ("train", "dev", "test")] == [120, 60, 60]
    source = column_files([train], REVIEW, dev=dev)
    sizes = [len(examples(source, split)) for split in ("train", "dev", "test")]
    assert sizes[1] == 60
    assert sizes[0] + sizes[2] == 60
    assert 0 < sizes[2] < 20


def test_lists_of_words_and_rationale(tmp_path: Path) -> None:
    rows: list[dict[str, object]] = [
        {"words": ["Don't", "go"], "bits": [1, 0], "stars": 0.5},
        {"words": ["Stay", "here", "!"], "bits": [0, 1, 0], "stars": 2.0},
        {"words": ["Nobody", "marked"], "bits": None, "stars": 1.0},
    ]
    columns = Columns(("words",), "stars", rationale=("bits",))
    spec = LabelSpec("score", low=-math.inf, high=math.inf)
    for ending in ("jsonl", "parquet"):
        path = write_table(tmp_path / f"w.{ending}", rows)
        source = column_files([path], columns, spec, dev=path, test=path)
        first, second, unmarked = examples(source, "train")
        assert first.texts == (("Don't", "go"),)
        assert first.rationale == ((True, False),)
        assert second.label == 2.0
        assert second.id == "w-2"
        assert unmarked.rationale == ((False, False),)


def test_wrong_column_names_the_nearest(tmp_path: Path, reviews: list[dict[str, object]]) -> None:
    for ending in ("csv", "jsonl", "parquet"):
        path = write_table(tmp_path / f"r.{ending}", reviews)
        with pytest.raises(DataError) as error:
            column_files([path], Columns(("reviw",), "stars"))
        assert str(path) in str(error.value)
        assert "no column 'reviw'; did you mean 'review'?" in str(error.value)
        assert "review, stars, key" in error.value.remedy


def test_columns_that_nobody_named_may_be_what_cannot_be_read(tmp_path: Path) -> None:
    cells: dict[str, Any] = {"text": ["a", "b"], "label": ["x", "y"]}
    table = pa.table(cells | {"late": pa.array([2**60] * 2, pa.timestamp("us"))})
    table = table.append_column("c", table["late"]).append_column("c", table["late"])
    pq.write_table(table, tmp_path / "t.parquet")
    (tmp_path / "t.csv").write_text("text,label,,\na,x,,\nb,y,,\n")
    for name in ("t.parquet", "t.csv"):
        path = tmp_path / name
        source = column_files([path], Columns(("text",), "label"), dev=path, test=path)
        rows = [row for row in source.read("dev") if isinstance(row, RawExample)]
        assert [(row.texts, row.label) for row in rows] == [(("a",), "x"), (("b",), "y")]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("t.csv", b"a,b,a\n1,2,3\n", "column 'a' more than once"),
        ("t.csv", b"", "no header"),
        ("t.csv", b"a,\xff\n", "header is not UTF-8"),
        ("t.parquet", b"PAR1 nothing", "cannot be read"),
        ("t.xlsx", b"", r"files ending in '\.xlsx' are not read"),
        ("t.parquet.gz", b"", "are not read"),
    ],
)
def test_unusable_tables_are_refused(
    tmp_path: Path, name: str, content: bytes, message: str
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(DataError, match=message) as error:
        column_files([path], Columns(("a",), "b"))
    assert str(path) in error.value.where


def test_impossible_requests_are_refused(tmp_path: Path, reviews: list[dict[str, object]]) -> None:
    for name in ("none.csv", "none.jsonl", "none.parquet"):
        with pytest.raises(DataError, match=r"cannot be read .No such file.*Check the path"):
            column_files([tmp_path / name], REVIEW)
    path = write_table(tmp_path / "r.csv", reviews)
    with pytest.raises(DataError, match="0\\.9/0/0\\.1 do not cut"):
        column_files([path], REVIEW, shares=(0.9, 0, 0.1))


def test_options_are_read_as_yaml_but_texts_stay_texts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "columns_here.py").write_text(
        "from rss_rl.components import Options\n"
        "from rss_rl.data.sources import SourceComponent\n"
        "class Own(Options):\n    column: str = 'text'\n    rows: int | None = None\n"
        "COLUMN = SourceComponent(\n"
        "    name='column', help='Given.', build=lambda request, own: own, options=Own)\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])

    def built(**options: str) -> Any:
        return named_source("columns_here:COLUMN", SourceRequest(options=options))

    assert (built(column="1").column, built(column="yes").column) == ("1", "yes")
    assert (built(rows="3").rows, built(rows="null").rows) == (3, None)
    with pytest.raises(DataError, match=r"source columns_here:COLUMN: .*did you mean 'rows'"):
        built(row="3")
    with pytest.raises(DataError, match="option rows: .*got 'many'"):
        built(rows="many")


@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz", "t.jsonl", "t.parquet"])
def test_a_pipe_is_no_table(tmp_path: Path, name: str) -> None:
    """It would be waited for, and can be read only once."""
    os.mkfifo(tmp_path / name)
    with pytest.raises(DataError, match="cannot be read .a pipe or a device") as error:
        column_files([tmp_path / name], Columns(("review",), "stars"))
    assert error.value.remedy
    with pytest.raises(DataError, match="a pipe or a device"):
        check_vectors(tmp_path / name)


@pytest.mark.parametrize("name", ["manifest.json", "states/e/states.json"])
def test_a_pipe_is_no_record_of_prepared_data(tmp_path: Path, name: str) -> None:
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    os.mkfifo(tmp_path / name)
    with pytest.raises(DataError, match="is no prepared directory|not a plain file"):
        (stored_states if "states" in name else Manifest.load)(tmp_path)


def test_scores_of_all_splits_are_within_the_range(tmp_path: Path) -> None:
    """Also where the least and the largest are drawn for dev or test."""
    path = write_table(tmp_path / "t.csv", [{"review": "w", "stars": n / 7} for n in range(60)])
    for seed in range(5):
        spec = LabelSpec("score", low=-math.inf, high=math.inf)
        source = column_files([path], Columns(("review",), "stars"), spec, seed=seed)
        checker = LabelChecker(source.labels)
        for split in ("train", "dev", "test"):
            assert all(checker.value(e.label)[0] is not None for e in examples(source, split))
            if split == "train":
                checker.end_of_training("t.csv")
        assert (checker.spec.low, checker.spec.high) == pytest.approx((0, 59 / 7))


def test_a_file_whose_name_is_not_utf8(tmp_path: Path) -> None:
    path = write_table(
        tmp_path / "t.csv", [{"review": "w", "stars": "ab"[n % 2]} for n in range(9)]
    )
    named = path.rename(os.fsdecode(os.fsencode(tmp_path) + b"/\xff.csv"))
    with pytest.raises(StorageError, match="cannot be written: .*surrogates"):
        prepare([named], text="review", label="stars", out=named.with_suffix(""), dim=4)
    source = column_files([named], Columns(("review",), "stars"))
    for text in (source.name, *(example.id for example in examples(source, "train"))):
        assert text.encode().startswith("\ufffd".encode())


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([f"id{i}" for i in range(30)], "each of the 30 training rows has a label of its own"),
        (["1", "1.0", "2"], "'1' and '1.0' are two ways to write one class"),
        (["True", "true", "x"], "'True' and 'true' are two ways"),
        (["up", "up\u200b", "x"], r"'up' and 'up\\u200b' are two ways"),
        (["caf\xe9", "cafe\u0301", "x"], r"'cafe\\u0301' and 'caf\\xe9' are two ways"),
        (["a b", "a\u3000 b\x00"], r"'a b' and 'a\\u3000 b\\x00' are two ways"),
    ],
)
def test_classes_that_cannot_be_meant(labels: list[str], message: str) -> None:
    checker = LabelChecker(None)
    for label in labels:
        checker.value(label)
    with pytest.raises(DataError, match=message):
        checker.end_of_training("t.csv")


def test_classes_are_told_apart_to_the_last_character() -> None:
    checker, names = LabelChecker(None), ("1_1", "11", str(2**53), str(2**53 + 1), "up")
    for name in names:
        checker.value(name)
    checker.end_of_training("t.csv")
    assert sorted(checker.spec.names) == sorted(names)
    found, (reason, _) = checker.value("up\u200b")
    assert (found, reason) == (None, r"unknown label 'up\u200b', not 'up'")
    assert checker.value("\u200b")[1][0] == "the label is missing"
    assert LabelChecker(LabelSpec("score", low=0, high=20)).value("1_1")[0] is None
