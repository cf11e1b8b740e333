"""The real datasets, where they are at hand: counts, answers in place, padding below a tenth."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from rss_rl.data.sources import BadRow, RawExample, Source, SourceRequest, named_source

NAMES = ("train", "dev", "test")


def real(real_data: Path, name: str, folder: str, **options: str) -> Source:
    if not (real_data / folder).exists():
        pytest.skip(f"{folder} is not among the real datasets")
    return named_source(name, SourceRequest(real_data / folder, 0, options))


def counts(source: Source, split: str) -> tuple[int, int]:
    """Examples of a split, and rows that are left out by convention; others are none."""
    kinds = Counter(
        ("bad" if not row.by_convention else "dropped") if isinstance(row, BadRow) else "good"
        for row in source.read(split)
    )
    assert not kinds["bad"]
    return kinds["good"], kinds["dropped"]


@pytest.mark.parametrize(
    ("name", "folder", "rows"),
    [
        ("snli", "snli", [(24980, 0), (9842, 0), (9824, 0)]),
        ("sick-entailment", "sick", [(4500, 0), (500, 0), (4927, 0)]),
        ("eraser-movies", "eraser_movies", [(1600, 0), (200, 0), (199, 0)]),
        ("yelp-hat", "yelp_hat", [(1089, 0), (141, 0), (315, 0)]),
        ("trec", "trec", [(4907, 0), (545, 0), (500, 0)]),
        ("sst-1", "sst", [(8544, 0), (1101, 0), (2210, 0)]),
        ("sst-2", "sst", [(6920, 0), (872, 0), (1821, 0)]),
        ("trecqa", "trecqa", [(4718, 0), (1148, 0), (1517, 0)]),
        ("lambada", "lambada", [(3227, 668), (812, 162), (4256, 897)]),
    ],
)
def test_rows_of_the_official_files(
    real_data: Path, name: str, folder: str, rows: list[tuple[int, int]]
) -> None:
    source = real(real_data, name, folder)
    assert [counts(source, split) for split in NAMES] == rows
    labels = {row.label for row in source.read("test") if isinstance(row, RawExample)}
    spec = source.labels
    assert spec is not None
    assert spec.chooses or labels == set(spec.names)


def test_answers_of_squad_stand_in_their_sentences(real_data: Path) -> None:
    source = real(real_data, "squad", "squad")
    rows = list(source.read("test"))
    assert len(rows) == 989
    for row in rows:
        assert isinstance(row, RawExample)
        assert row.marks is not None
        assert row.label in row.marks
        assert sorted(row.marks) == list(row.marks)
