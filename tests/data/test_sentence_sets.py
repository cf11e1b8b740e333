"""TREC, SST and the sets of cross validation: lines, trees, cuts and folds."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rss_rl.data.corpora.cuts import cut_groups, fold_rows
from rss_rl.data.prepare import prepare
from rss_rl.data.sources import BadRow, RawExample, Source, SourceRequest, Words, named_source
from rss_rl.errors import DataError


def source(name: str, folder: Path, seed: int = 0, **options: str) -> Source:
    return named_source(name, SourceRequest(folder, seed, options))


def examples(made: Source, split: str) -> list[RawExample]:
    rows = list(made.read(split))
    assert not [row for row in rows if isinstance(row, BadRow) and not row.by_convention]
    return [row for row in rows if isinstance(row, RawExample)]


def write(folder: Path, files: Mapping[str, bytes]) -> Path:
    folder.mkdir(exist_ok=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return folder


@pytest.fixture
def trec(tmp_path: Path) -> Path:
    kinds = ["NUM:date When did it end ?", "HUM:ind Who is Se\xf1or P\x85 ?", "LOC:other Where ?"]
    train = "".join(f"{kinds[i % 3]}\n" for i in range(100)).encode("latin-1")
    return write(tmp_path / "trec", {"train_5500.label": train, "TREC_10.label": b"ABBR:exp A ?"})


def test_trec(trec: Path) -> None:
    made = source("trec", trec)
    parts = {split: examples(made, split) for split in made.splits}
    assert {split: len(rows) for split, rows in parts.items()} == {
        "train": 90,
        "dev": 10,
        "test": 1,
    }
    ids = [e.id for rows in parts.values() for e in rows]
    assert len(set(ids)) == 101
    second = next(e for e in parts["train"] if e.label == "HUM")
    # 0x85 is white space to Unicode, and no end of a word or line to this file.
    assert second.texts == (Words(("Who", "is", "Se\xf1or", "P\x85", "?")),)
    assert (second.file, second.row % 3) == (str(trec / "train_5500.label"), 2)
    assert made.labels.names == ("ABBR", "DESC", "ENTY", "HUM", "LOC", "NUM")


@settings(max_examples=40)
@given(rows=st.integers(1, 60), folds=st.integers(2, 12), seed=st.integers(0, 5))
def test_every_row_is_tested_in_exactly_one_fold(rows: int, folds: int, seed: int) -> None:
    tested = np.zeros(rows, dtype=int)
    for fold in range(folds):
        parts = {
            split: fold_rows(split, rows, name="x", fold=fold, folds=folds, seed=seed)
            for split in ("train", "dev", "test")
        }
        assert (sum(part.astype(int) for part in parts.values()) == 1).all()
        others = rows - parts["test"].sum()
        assert parts["dev"].sum() == round(0.1 * others)
        assert parts["test"].sum() in (rows // folds, rows // folds + 1)
        tested += parts["test"]
    assert (tested == 1).all()


def test_folds_of_a_file(tmp_path: Path) -> None:
    lines = [f"{i % 2} it 's w{i} \N{EN DASH}\n".encode("cp1252") for i in range(50)]
    lines[20] = b"1 \n"
    folder = write(tmp_path / "cr", {"custrev.all": b"".join(lines)})
    tested: list[str] = []
    for fold in range(10):
        made = source("cr", folder, fold=str(fold))
        parts = {split: {e.id for e in examples(made, split)} for split in made.splits}
        assert len(parts["train"] | parts["dev"] | parts["test"]) == 49
        assert sum(map(len, parts.values())) == 49
        tested += sorted(parts["test"])
    assert len(tested) == len(set(tested)) == 49
    other = {e.id for e in examples(source("cr", folder, 1, fold="0"), "test")}
    assert other != {e.id for e in examples(source("cr", folder, 0, fold="0"), "test")}
    (dropped,) = [
        row
        for split in ("train", "dev", "test")
        for row in source("cr", folder).read(split)
        if isinstance(row, BadRow)
    ]
    assert (dropped.row, dropped.by_convention) == (21, True)
    first = next(e for e in examples(source("cr", folder), "train") if e.label == "positive")
    assert first.texts[0][-1] == "\N{EN DASH}"


def test_classes_of_the_folded_sets(tmp_path: Path) -> None:
    names = {"cr": "custrev.all", "mpqa": "mpqa.all", "subj": "subj.all"}
    for name, file in names.items():
        made = source(name, write(tmp_path / name, {file: b"0 a b\n1 c\n2 d\n" * 20}))
        labels = {e.label for e in examples(made, "train")}
        first, second = ("subjective", "objective") if name == "subj" else ("negative", "positive")
        assert made.labels.names == (first, second)
        assert labels == {first, second, "2"}  # the last is refused where labels are checked
        with pytest.raises(DataError, match=rf"{file}, row \d+: unknown label '2'"):
            prepare(made, tmp_path / "out", dim=2)


def test_sst_of_lines(tmp_path: Path) -> None:
    good = "0 dull , caf\xe9\n4 fine\n".encode()
    files = {f"stsa.fine.{split}": good for split in ("train", "dev", "test")}
    files |= {f"stsa.binary.{split}": b"0 dull\n1 fine\n" for split in ("train", "dev", "test")}
    files["stsa.fine.dev"] = b"\xef\xbb\xbf2 so\n0 \xff\n\n1\n"
    folder = write(tmp_path / "sst", files)
    five, two = source("sst-1", folder), source("sst-2", folder)
    assert [e.label for e in examples(five, "train")] == ["very negative", "very positive"]
    assert [e.label for e in examples(two, "test")] == ["negative", "positive"]
    so, bad, empty = five.read("dev")
    assert isinstance(so, RawExample)
    assert so.label == "neutral"
    assert isinstance(bad, BadRow)
    assert (bad.row, bad.reason, bad.content) == (2, "bytes that are not UTF-8", "0 \\xff")
    assert isinstance(empty, BadRow)
    assert (empty.row, empty.by_convention) == (4, False)


TREES = b"(3 (2 It) (4 (2 really) (4 shines)))\n(2 So\\/so)\n(1 (1 Dull) (2 -LRB-))\n"


def test_sst_of_trees(tmp_path: Path) -> None:
    folder = write(tmp_path / "sst", dict.fromkeys(("train.txt", "dev.txt", "test.txt"), TREES))
    rows = examples(source("sst-1", folder), "train")
    assert [(e.label, e.texts[0]) for e in rows] == [
        ("positive", ("It", "really", "shines")),
        ("neutral", ("So/so",)),
        ("negative", ("Dull", "(")),
    ]
    two = source("sst-2", folder)
    assert [e.label for e in examples(two, "dev")] == ["positive", "negative"]
    assert sum(isinstance(row, BadRow) for row in two.read("dev")) == 1
    phrases = source("sst-2", folder, phrases="yes")
    rows = examples(phrases, "train")
    assert [" ".join(e.texts[0]) for e in rows] == [
        "shines",
        "really shines",
        "It really shines",
        "Dull",
        "Dull (",
    ]
    assert len({e.id for e in rows}) == 5
    assert len(examples(phrases, "dev")) == 2


@given(
    names=st.lists(st.text("abcdefg", min_size=1, max_size=2), min_size=3, max_size=40),
    seed=st.integers(0, 9),
)
def test_groups_are_never_parted(names: list[str], seed: int) -> None:
    shares = {"train": 0.8, "dev": 0.1, "test": 0.1}
    if len(set(names)) < 3:
        with pytest.raises(DataError, match="cannot be cut into 3 splits"):
            cut_groups(names, shares, seed)
        return
    found = cut_groups(names, shares, seed)
    assert set(found) == set(names)
    sizes = [list(found.values()).count(split) for split in shares]
    assert min(sizes) >= 1
    assert abs(sizes[1] - 0.1 * len(found)) <= 1
    assert abs(sizes[2] - 0.1 * len(found)) <= 1
