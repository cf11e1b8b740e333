"""The real datasets, where they are at hand: counts, answers in place, padding below a tenth."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from suite.training_step import padding_share

from rss_rl.data.batch_order import BatchOrder
from rss_rl.data.length_buckets import plain_batches
from rss_rl.data.prepare import prepare
from rss_rl.data.sources import BadRow, RawExample, Source, SourceRequest, named_source
from rss_rl.data.store import open_prepared

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


@pytest.mark.parametrize(("name", "rows"), [("cr", 3771), ("mpqa", 10603), ("subj", 10000)])
def test_folds_hold_every_row_once(real_data: Path, name: str, rows: int) -> None:
    tested: Counter[str] = Counter()
    for fold in range(10):
        source = real(real_data, name, name, fold=str(fold))
        tested.update(row.id for row in source.read("test") if isinstance(row, RawExample))
    assert set(tested.values()) == {1}
    assert len(tested) == rows
    assert sum(counts(source, split)[0] for split in NAMES) == rows


def test_answers_of_squad_stand_in_their_sentences(real_data: Path) -> None:
    source = real(real_data, "squad", "squad")
    rows = list(source.read("test"))
    assert len(rows) == 989
    for row in rows:
        assert isinstance(row, RawExample)
        assert row.marks is not None
        assert row.label in row.marks
        assert sorted(row.marks) == list(row.marks)


def test_sick_has_vectors_and_batches_of_like_lengths(real_data: Path, tmp_path: Path) -> None:
    source = real(real_data, "sick-relatedness", "sick")
    glove = real_data / "vectors/glove.6B.100d.txt.gz"
    if not glove.exists():
        pytest.skip("GloVe is not among the real datasets")
    assert prepare(source, tmp_path / "out", vectors=[glove]).vectors.any.words > 0.98
    prepared = open_prepared(tmp_path / "out")
    # The 500 dev pairs make eight batches, too few to find like lengths for.
    for split in (prepared.split(name) for name in ("train", "test")):
        lengths, order = split.lengths(), BatchOrder(split, 64, seed=0)
        for epoch in range(3):
            numbers = range(epoch * order.batches_per_epoch, (epoch + 1) * order.batches_per_epoch)
            assert padding_share(lengths, [order.rows(number) for number in numbers]) < 0.10
        assert padding_share(lengths, plain_batches(lengths, 64)) < 0.10
