"""Rows that cannot be used: an error with file, row and remedy, or a line of the rejects file."""

from __future__ import annotations

import gzip
import json
import math
import tracemalloc
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import rss_rl
from rss_rl.data.column_files import Columns, column_files
from rss_rl.data.prepare import prepare
from rss_rl.data.sources import BadRow, Source, SourceRequest, named_source
from rss_rl.data.store import open_prepared
from rss_rl.data.tables import Record, read_records
from rss_rl.errors import DataError
from rss_rl.types import LabelSpec

GOOD_CSV = b"text,label\nfine words,good\nmore words,bad\n"
GOOD_JSONL = b'{"text": "fine", "label": "good"}\n{"text": ["a", "b"], "label": "bad"}\n'
GOOD_SCORES = b"text,label\nfine words,1\nmore words,2.5\n"
CLASSES = LabelSpec("classes", names=("good", "bad"))
SCORE = LabelSpec("score", low=0, high=5)

MISSING = (b"", b"  ", b"nan", b"NaN", b"None", b"null", b" NULL ")
CSV_CASES = [
    (b"too,many,fields\n", "malformed row: 3 fields, the header has 2"),
    (b"alone\n", "malformed row: 1 fields, the header has 2"),
    (b'"open,good\n', "malformed row (unexpected end of data)"),
    (b"a text,goood\n", "column 'label': unknown label 'goood'; did you mean 'good'?"),
    *((b"a text," + word + b"\n", "column 'label': the label is missing") for word in MISSING),
    (b"   ,good\n", "column 'text' is empty"),
    (b"caf\xe9 noir,good\n", "bytes that are not UTF-8"),
]
JSONL_CASES = [
    (b'{"text": "cut', "malformed row: no JSON"),
    (b"[" * 100_000 + b"\n", "malformed row: no JSON"),
    (b'["text", "label"]\n', "malformed row: no JSON object"),
    (b'{"text": "fine"}\n', "the label is missing"),
    (b'{"text": "fine", "label": null}\n', "the label is missing"),
    (b'{"text": "fine", "label": NaN}\n', "the label is missing"),
    (b'{"text": null, "label": "good"}\n', "column 'text' is empty"),
    (b'{"text": 7, "label": "good"}\n', "column 'text' is neither text nor a list of words"),
    (b'{"text": [], "label": "good"}\n', "column 'text' is empty"),
    (b'{"text": ["a", ""], "label": "good"}\n', "token 2 of column 'text' is empty"),
    (b'{"text": ["a", 1], "label": "good"}\n', "neither text nor a list of words"),
    (b'{"text": "\\ud800", "label": "good"}\n', "column 'text' contains a lone surrogate"),
    (b'{"text": "fine", "label": "good", "\\ud800": 1}\n', "lone surrogate"),
    (b'{"text": "caf\xe9", "label": "good"}\n', "bytes that are not UTF-8"),
]
SCORE_CASES = [
    (b"a text,nan\n", "column 'label': the label is missing"),
    (b"a text,1e40\n", "the score 1e40 does not fit 32 bits"),
    (b"a text,-1e39\n", "the score -1e39 does not fit 32 bits"),
    (b"a text,inf\n", "the score is inf"),
    (b"a text,5.01\n", "score 5.01 is outside 0 to 5"),
    (b"a text,-1\n", "score -1 is outside 0 to 5"),
    (b"a text,much\n", "column 'label': the score 'much' is not a number"),
]
CASES = [
    *(("t.csv", GOOD_CSV, CLASSES, *case) for case in CSV_CASES),
    *(("t.jsonl", GOOD_JSONL, CLASSES, *case) for case in JSONL_CASES),
    *(("t.csv", GOOD_SCORES, SCORE, *case) for case in SCORE_CASES),
]


@pytest.mark.parametrize(("name", "good", "spec", "bad", "reason"), CASES)
def test_bad_row_stops_or_is_listed(
    tmp_path: Path, name: str, good: bytes, spec: LabelSpec, bad: bytes, reason: str
) -> None:
    path, rest = tmp_path / name, tmp_path / f"rest-{name}"
    path.write_bytes(good + bad)
    rest.write_bytes(good)
    row = good.count(b"\n") + 1
    source = column_files([path], Columns(("text",), "label"), spec, dev=rest, test=rest)
    with pytest.raises(DataError) as error:
        prepare(source, tmp_path / "out", dim=2)
    assert error.value.where == f"{path}, row {row}"
    assert reason in error.value.what
    assert "--skip-bad-rows" in error.value.remedy
    assert sorted(p.name for p in tmp_path.iterdir()) == [f"rest-{name}", name]

    manifest = prepare(source, tmp_path / "out", dim=2, skip_bad_rows=True)
    assert (manifest.splits["train"].bad_rows, manifest.splits["train"].rows) == (1, 2)
    assert manifest.columns == ("text", "label")
    assert manifest.splits["dev"].bad_rows == 0
    (line,) = (tmp_path / "out" / "rejects.jsonl").read_text().splitlines()
    reject = json.loads(line)
    assert (reject["file"], reject["row"]) == (str(path), row)
    assert reason in reject["reason"]
    assert reject["content"] or reason.startswith("malformed row")
    assert len(open_prepared(tmp_path / "out").split("train")) == 2


def test_reading_goes_on_after_a_bad_row(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(b'text,label\nx,1\n"a"b,1\nc,d,e\n\nlast one,2\n\xff,2\nvery last,1\n')
    source = column_files([path], Columns(("text",), "label"), dev=path, test=path)
    prepare(source, tmp_path / "out", dim=2, skip_bad_rows=True)
    split = open_prepared(tmp_path / "out").split("train")
    assert [split.words(i) for i in range(3)] == [
        (("x",),),
        (("last", "one"),),
        (("very", "last"),),
    ]
    assert [split.example_id(i) for i in range(3)] == ["t-2", "t-6", "t-8"]
    rejects = (tmp_path / "out" / "rejects.jsonl").read_text().splitlines()
    assert [json.loads(line)["row"] for line in rejects] == [3, 4, 7] * 3


PLAIN = [f"row {i} of words,{i % 2}" for i in range(5000)]


@pytest.mark.parametrize(
    ("opens", "closes"),
    [('"never closed,1', None), ('"closed late,1', 'a screen of 15",1'), ('a,"b,1', 'c","d')],
)
def test_an_unbalanced_quote_is_reported_where_it_opens(
    tmp_path: Path, opens: str, closes: str | None
) -> None:
    """Rows without quotes follow, and perhaps one that closes it by accident."""
    path = tmp_path / "t.csv"
    rows = [*PLAIN[:9], opens, *PLAIN[9:3009], *([closes] if closes else []), *PLAIN[3009:]]
    path.write_text("\n".join(["text,label", *rows]) + "\n")
    with pytest.raises(DataError, match=r"t\.csv, row 11: .*line \d+.* Close its quotes"):
        prepare(source_of(path), tmp_path / "out", dim=2)
    output = list(read_records(path))
    assert [row.row for row in output if isinstance(row, BadRow)] == [11]
    kept = [row for row in output if isinstance(row, Record)]
    assert max(len(row.values["text"]) for row in kept) < 25


LONGEST = 1 << 16
LONG = "no row of a table " * LONGEST


def test_a_field_without_an_end_is_a_bad_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rss_rl.data.tables._LONGEST_ROW", LONGEST)
    path = tmp_path / "t.csv"
    path.write_text('text,label\nx,1\n"' + LONG.replace("table ", "table\n") + "y,2\n")
    output = [row for row in read_records(path) if isinstance(row, BadRow)]
    assert output[0].row == 3
    assert "characters" in output[0].reason


@pytest.mark.parametrize("suffix", ["csv", "tsv.gz", "jsonl", "jsonl.gz", "parquet"])
def test_a_row_longer_than_any_is_named_and_left_out_in_flat_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str
) -> None:
    for name in ("tables._LONGEST_ROW", "tables._CHUNK", "checks.MOST_CHARACTERS"):
        monkeypatch.setattr(f"rss_rl.data.{name}", LONGEST)
    path = tmp_path / f"t.{suffix}"
    rows = [{"text": t, "label": label} for t, label in (("good", "x"), (LONG, "x"), ("bad", "y"))]
    if suffix == "parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    else:
        separator = "," if suffix == "csv" else "\t"
        table = [list(rows[0]), *(list(row.values()) for row in rows)]
        lines = map(json.dumps, rows) if "jsonl" in suffix else map(separator.join, table)
        content = "\n".join(lines).encode()
        path.write_bytes(gzip.compress(content) if suffix.endswith("gz") else content)
    with pytest.raises(DataError, match=rf"{path.name}, row \d: .*characters.*--skip-bad-rows"):
        prepare(source_of(path), tmp_path / "out", dim=2)
    list(read_records(path))
    tracemalloc.start()
    list(read_records(path))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert suffix == "parquet" or peak < 8 * LONGEST < len(LONG)
    manifest = prepare(source_of(path), tmp_path / "out", dim=2, skip_bad_rows=True)
    assert (manifest.splits["train"].rows, manifest.splits["train"].bad_rows) == (2, 1)
    assert (tmp_path / "out" / "rejects.jsonl").stat().st_size < 4 * LONGEST


def test_rows_dropped_by_convention_are_counted(tmp_path: Path) -> None:
    pair = {"sentence1": "A man sits.", "sentence2": "A man rests."}
    rows = [pair | {"gold_label": label} for label in ("neutral", "-", "entailment", "-")]
    for name in ("train.jsonl", "dev.jsonl", "test.jsonl"):
        (tmp_path / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    manifest = prepare(named_source("snli", SourceRequest(tmp_path)), tmp_path / "out", dim=2)
    assert [(s.rows, s.dropped_rows, s.bad_rows) for s in manifest.splits.values()] == [
        (2, 2, 0)
    ] * 3
    assert not (tmp_path / "out" / "rejects.jsonl").exists()


def source_of(path: Path, spec: LabelSpec | None = None) -> Source:
    return column_files([path], Columns(("text",), "label"), spec, dev=path, test=path)


def test_all_rows_bad_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(b"text,label\n,1\n,2\n")
    with pytest.raises(DataError, match=r"t\.csv: the train split has no usable row.*more rows"):
        prepare(source_of(path), tmp_path / "out", dim=2, skip_bad_rows=True)


def test_labels_that_cannot_be_learned_are_errors(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("text,label\n" + "x,same\n" * 3)
    with pytest.raises(DataError, match="all training rows have the same label, 'same'.*--label"):
        prepare(source_of(path), tmp_path / "out", dim=2)
    path.write_text("text,label\n" + "".join(f"x,{i / 7}\n" for i in range(1500)))
    with pytest.raises(DataError, match="more than 1000 different values.*--task score"):
        prepare(source_of(path), tmp_path / "out", dim=2)
    learn = LabelSpec("score", low=-math.inf, high=math.inf)
    manifest = prepare(source_of(path, learn), tmp_path / "out", dim=2)
    assert manifest.labels == LabelSpec("score", low=0.0, high=1499 / 7)


def test_a_table_with_another_separator_is_told_so(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("text;label\nfine;1\n")
    with pytest.raises(DataError, match="no column 'text'.*separated by ';': write a comma"):
        prepare(source_of(path), tmp_path / "out", dim=2)


@pytest.mark.parametrize("empty", [None, " "])
def test_a_class_whose_first_row_is_left_out_is_trained_on_all_the_same(
    empty: str | None, tmp_path: Path
) -> None:
    known = [{"text": f"{word} {n}", "label": word} for n in range(20) for word in ("fine", "dull")]
    odd = [{"text": empty, "label": "odd"}, {"text": "odd film", "label": "odd"}]
    for seed in range(12):
        rss_rl.prepare(
            [*known, *odd], out=tmp_path / "out", text="text", label="label", dim=2, force=True,
            skip_bad_rows=True, split_seed=seed,
        )  # fmt: skip
        assert "odd" in open_prepared(tmp_path / "out").labels.names
