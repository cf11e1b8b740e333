"""What a rollout costs on its way from a sampler to the learner."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from rss_rl.rollouts.rollout import Rollout

PAIRS, WIDTH = 256, 64


def _pairs(samples: int, *, bitwise: bool = False) -> Rollout:
    """Selections of pairs of sentences of up to 64 tokens each."""
    draw = np.random.default_rng(0)
    shape = (samples, PAIRS)
    return Rollout(
        rows=draw.integers(0, 10**6, PAIRS),
        selections=tuple(draw.random((*shape, 2, WIDTH)) < 0.5 for _ in range(2)),
        log_prob=draw.normal(size=(*shape, 2)).astype(np.float32),
        scores={"log_likelihood": draw.normal(size=shape).astype(np.float32)},
        costs={"sparsity_cost": draw.random((*shape, 2)).astype(np.float32)},
        thresholded=np.full((PAIRS, 2), np.nan, np.float32),
        version=7,
        bit_log_prob=tuple(
            draw.normal(size=(*shape, 2, WIDTH)).astype(np.float32) for _ in range(2) if bitwise
        ),
    )


def _stream(batch: pa.RecordBatch) -> int:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue().size


@pytest.mark.parametrize("samples", [1, 4])
def test_a_pair_and_its_selection_take_less_than_60_bytes(samples: int) -> None:
    """And what comes with a batch as a whole less than 3 kB."""
    batch = _pairs(samples).to_arrow()
    selections = samples * PAIRS
    assert batch.nbytes / selections < 60
    assert _stream(batch) - batch.nbytes < 3000


def test_log_probs_of_bits_cost_extra_only_where_they_travel() -> None:
    plain, bitwise = (_pairs(1, bitwise=flag).to_arrow().nbytes for flag in (False, True))
    assert bitwise - plain == PAIRS * 2 * 2 * WIDTH * 4


def test_what_was_not_asked_for_does_not_travel() -> None:
    whole = _pairs(2)
    unscored = replace(whole, scores={}, costs={})
    saved = whole.to_arrow().nbytes - unscored.to_arrow().nbytes
    assert saved == 2 * PAIRS * (4 + 2 * 4)
    back = Rollout.from_arrow(unscored.to_arrow())
    assert np.isnan(back.score).all()
    assert np.isnan(back.cost).all()
    assert np.isnan(back.thresholded).all()
    assert back.thresholded.shape == whole.thresholded.shape


@pytest.mark.parametrize("last", [2**31 - 1, 2**31, 2**40])
def test_rows_of_any_size_arrive(last: int) -> None:
    sent = replace(_pairs(2), rows=np.arange(last - PAIRS + 1, last + 1))
    back = Rollout.from_arrow(sent.to_arrow())
    assert back.rows.dtype == np.int64
    np.testing.assert_array_equal(back.rows, sent.rows)
