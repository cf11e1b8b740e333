"""Vector files in all their formats, their faults, and the table made of them."""

from __future__ import annotations

import gzip
import struct
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest

import rss_rl
from rss_rl.data.sources import BadRow
from rss_rl.data.vectors import (
    FileVectors,
    random_vectors,
    read_vectors,
    vector_scales,
    vector_table,
)
from rss_rl.data.vocabulary import Vocabulary
from rss_rl.errors import DataError

TEXT = "the 1 2 3\ncat -0.5 1e-2 7\nParis 4 5 6\nrare 9 9 9\n"
VECTORS = {word: [*map(float, numbers)] for word, *numbers in map(str.split, TEXT.splitlines())}
EXPECTED: dict[str, list[float]] = {"the": [1, 2, 3], "cat": [-0.5, 0.01, 7], "paris": [4, 5, 6]}
VOCABULARY = Vocabulary.count(Counter({"the": 3, "cat": 2, "paris": 1}), Counter({"unheard": 1}))


def refuse(row: BadRow) -> None:
    raise row.error()


def write_plain(path: Path) -> Path:
    path.write_text(TEXT, encoding="utf-8")
    return path


def write_with_header(path: Path) -> Path:
    path.write_text("4 3\n" + TEXT, encoding="utf-8")
    return path


def write_binary(path: Path, vectors: Mapping[str, Sequence[float]] = VECTORS) -> Path:
    width = len(next(iter(vectors.values())))
    with path.open("wb") as stream:
        stream.write(f"{len(vectors)} {width}\n".encode())
        for word, vector in vectors.items():
            stream.write(word.encode() + b" " + struct.pack(f"<{width}f", *vector) + b"\n")
    return path


@pytest.mark.parametrize("write", [write_plain, write_with_header, write_binary])
@pytest.mark.parametrize("name", ["v.txt", "v.bin", "V.BIN", "v.vec"])
def test_formats_are_told_by_content_whatever_the_name(
    tmp_path: Path, name: str, write: Callable[[Path], Path]
) -> None:
    path = write(tmp_path / name)
    check_expected(path)
    for ending in ("gz", "GZ"):
        packed = tmp_path / f"{name}.{ending}"
        packed.write_bytes(gzip.compress(path.read_bytes()))
        check_expected(packed)


def check_expected(path: Path) -> None:
    part = read_vectors(path, VOCABULARY, refuse)
    assert part.vectors.dtype == np.float32
    assert part.vectors.shape == (len(VOCABULARY), 3)
    for word, vector in EXPECTED.items():
        row = VOCABULARY.words.index(word)
        assert part.known[row]
        np.testing.assert_allclose(part.vectors[row], vector, rtol=1e-7)
    assert part.known.sum() == len(EXPECTED)


def test_spelling_nearest_to_the_word_wins(tmp_path: Path) -> None:
    path = tmp_path / "v.txt"
    path.write_text("US 1 1\nUs 2 2\nus 3 3\nNASA 4 4\nOF 5 5\nof 6 6\n")
    vocabulary = Vocabulary.count(Counter(["us", "US", "nasa", "Of"]), Counter())
    part = read_vectors(path, vocabulary, refuse)
    got = {word: float(part.vectors[vocabulary.ids([word])[0], 0]) for word in vocabulary.words}
    assert got == {"<pad>": 0, "<unk>": 0, "us": 3, "US": 1, "nasa": 4, "Of": 6}


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("cat 1 2", "2 numbers where 3 are expected"),
        ("rare 1 2 3 4", "4 numbers where 3 are expected"),
        ("cat", "0 numbers where 3 are expected"),
        ("cat 1 x 3", "a component is not a number"),
        ("cat 1 nan 3", "a component is not finite"),
        ("cat 1 -1e30 3", "a component is beyond 1e+06"),
    ],
)
def test_bad_line_names_file_line_and_remedy(tmp_path: Path, line: str, reason: str) -> None:
    path = tmp_path / "v.txt"
    path.write_text(f"the 1 2 3\n{line}\nparis 4 5 6\n")
    with pytest.raises(DataError) as error:
        read_vectors(path, VOCABULARY, refuse)
    assert error.value.where == f"{path}, row 2"
    assert reason in error.value.what
    assert "Fetch the file again" in error.value.remedy
    assert "--skip-bad-rows" in error.value.remedy
    bad: list[BadRow] = []
    part = read_vectors(path, VOCABULARY, bad.append)
    assert [row.row for row in bad] == [2]
    assert part.known[VOCABULARY.words.index("paris")]


def test_unusable_files_are_errors(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"none\.txt: cannot be read"):
        read_vectors(tmp_path / "none.txt", VOCABULARY, refuse)
    other = tmp_path / "fasttext.bin"
    other.write_bytes(b"\xba\x16\x4f\x2f\x0c\0\0\0")
    with pytest.raises(DataError, match=r"fastText's \.vec in place of its \.bin"):
        read_vectors(other, VOCABULARY, refuse)
    foreign = tmp_path / "foreign.txt"
    foreign.write_text("chien 1 2\n")
    with pytest.raises(DataError, match="no vector for any word"):
        read_vectors(foreign, VOCABULARY, refuse)


@pytest.mark.parametrize("size", [1e-30, 1e-7])
def test_numbers_that_are_none_of_word_vectors_are_refused(tmp_path: Path, size: float) -> None:
    write_binary(tmp_path / "v.bin", {"w1": [size, -size], "w2": [size, 0]})
    rows = [{"text": f"w{n}", "label": n % 2} for n in range(20)]
    with pytest.raises(
        DataError, match=r"v\.bin: the largest number of its vectors is 1e-\d+.*Scale"
    ):
        rss_rl.prepare(
            rows, text="text", label="label", vectors=tmp_path / "v.bin", out=tmp_path / "out"
        )


def test_files_side_by_side(tmp_path: Path) -> None:
    first = read_vectors(write_plain(tmp_path / "v.txt"), VOCABULARY, refuse)
    binary = write_binary(tmp_path / "v.bin", {"the": [8, 9], "unheard": [5, 6]})
    second = read_vectors(binary, VOCABULARY, refuse)
    table = vector_table([first, second], VOCABULARY, seed=0, scales=[1.0, 2.0])
    rows = {word: table[i] for i, word in enumerate(VOCABULARY.words)}
    assert rows["the"].tolist() == [1, 2, 3, 16, 18]
    assert rows["unheard"][3:].tolist() == [10, 12]
    assert rows["<pad>"].tolist() == [0] * 5
    # What a file does not have is random in that file's part, and small.
    for part in (rows["unheard"][:3], rows["paris"][3:], rows["<unk>"]):
        assert 0 < np.abs(part).max() <= 0.05


def test_scales_give_every_file_the_spread_of_the_first() -> None:
    draw = np.random.default_rng(0)
    found = np.array([False, True, True, True])
    parts = [
        FileVectors((draw.normal(size=(4, 50)) * spread * found[:, None]), found, 3)
        for spread in (0.5, 0.05, 3.0)
    ]
    scales = vector_scales(parts)
    assert scales[0] == 1.0
    for part, scale in zip(parts, scales, strict=True):
        assert (part.vectors[found] * scale).std() == pytest.approx(parts[0].vectors[found].std())
    nothing = FileVectors(np.zeros((4, 2)), found, 3)
    assert vector_scales([parts[0], nothing]) == (1.0, 1.0)


def test_random_vectors_depend_on_seed_and_word_only() -> None:
    many = Vocabulary.count(Counter(f"w{i}" for i in range(300)), Counter())
    few = Vocabulary.count(Counter(["w7", "q"]), Counter())
    table = random_vectors(many, 40, seed=1)
    row = table[many.words.index("w7")]
    np.testing.assert_array_equal(random_vectors(few, 40, seed=1)[few.words.index("w7")], row)
    assert not np.allclose(random_vectors(few, 40, seed=2)[few.words.index("w7")], row)
    assert not table[0].any()
    assert table[1:].min() >= -0.05
    assert table[1:].max() <= 0.05
    assert abs(float(table[1:].mean())) < 0.002
    assert float(table[1:].std()) == pytest.approx(0.1 / 12**0.5, rel=0.05)
