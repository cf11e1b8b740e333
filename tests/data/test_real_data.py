"""SICK and SNLI themselves, where they are at hand: counts, and padding below a tenth."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from rss_rl.data.batch_order import BatchOrder
from rss_rl.data.length_buckets import padding_share, plain_batches
from rss_rl.data.prepare import prepare
from rss_rl.data.sources import SourceRequest, named_source
from rss_rl.data.store import Prepared, open_prepared

GLOVE = "vectors/glove.6B.100d.txt.gz"


def prepare_real(
    real_data: Path, folder: str, name: str, out: Path, vectors: tuple[str, ...] = ()
) -> Prepared:
    files = [real_data / file for file in vectors]
    for needed in (real_data / folder, *files):
        if not needed.exists():
            pytest.skip(f"{needed.name} is not among the real datasets")
    prepare(named_source(name, SourceRequest(real_data / folder)), out, vectors=files, dim=2)
    return open_prepared(out)


def check_padding(prepared: Prepared, splits: tuple[str, ...]) -> None:
    for name in splits:
        split = prepared.split(name)
        lengths, order = split.lengths(), BatchOrder(split, 64, seed=0)
        for epoch in range(3):
            numbers = range(epoch * order.batches_per_epoch, (epoch + 1) * order.batches_per_epoch)
            assert padding_share(lengths, [order.rows(number) for number in numbers]) < 0.10
        assert padding_share(lengths, plain_batches(lengths, 64)) < 0.10


def test_sick(real_data: Path, tmp_path: Path) -> None:
    prepared = prepare_real(real_data, "sick", "sick-relatedness", tmp_path / "out", (GLOVE,))
    assert [info.rows for info in prepared.manifest.splits.values()] == [4500, 500, 4927]
    assert prepared.manifest.vectors.any.words > 0.98
    train = prepared.split("train")
    labels = train.batch(np.arange(len(train))).labels
    assert (labels.min(), labels.max()) == (1.0, 5.0)
    # The 500 dev pairs make eight batches, too few to find like lengths for.
    check_padding(prepared, ("train", "test"))


def test_snli(real_data: Path, tmp_path: Path) -> None:
    prepared = prepare_real(real_data, "snli", "snli", tmp_path / "out")
    assert [info.rows for info in prepared.manifest.splits.values()] == [24980, 9842, 9824]
    check_padding(prepared, ("train", "dev", "test"))
