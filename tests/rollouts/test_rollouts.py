"""Rollouts cross processes unchanged, and shards join into the rollout of the whole."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from rss_rl.reward_models.reward_model import Rewards
from rss_rl.rollouts.rollout import Job, Rollout, join_rollouts


def _rollout(
    samples: int,
    examples: int,
    widths: list[int],
    seed: int,
    version: int = 3,
    *,
    bitwise: bool = False,
) -> Rollout:
    draw = np.random.default_rng(seed)
    sentences = len(widths)
    shape = (samples, examples)
    return Rollout(
        rows=draw.integers(0, 1000, examples),
        selections=tuple(draw.random((*shape, 2, width)) < 0.5 for width in widths),
        log_prob=draw.normal(size=(*shape, sentences)).astype(np.float32),
        terms=Rewards(
            {name: draw.normal(size=shape).astype(np.float32) for name in ("right", "fluent")},
            {
                name: draw.random((*shape, sentences)).astype(np.float32)
                for name in ("sparsity_cost", "coherence_cost")
            },
        ),
        thresholded=draw.normal(size=(examples, sentences)).astype(np.float32),
        version=version,
        bit_log_prob=tuple(
            draw.normal(size=(*shape, 2, width)).astype(np.float32) for width in widths if bitwise
        ),
    )


@settings(max_examples=30)
@given(
    st.integers(1, 4),
    st.integers(1, 5),
    st.lists(st.integers(1, 19), min_size=1, max_size=2),
    st.integers(0, 99),
    st.booleans(),
)
def test_arrow_round_trip(
    samples: int, examples: int, widths: list[int], seed: int, bitwise: bool
) -> None:
    sent = _rollout(samples, examples, widths, seed, bitwise=bitwise)
    got = Rollout.from_bytes(sent.to_bytes())
    assert got.version == sent.version
    assert list(got.arrays()) == list(sent.arrays())
    for name, values in sent.arrays().items():
        assert got.arrays()[name].dtype == values.dtype
        np.testing.assert_array_equal(got.arrays()[name], values, err_msg=name)
    assert len(got.bit_log_prob) == (len(widths) if bitwise else 0)


def test_what_was_not_asked_for_is_not_sent() -> None:
    sent = replace(_rollout(2, 3, [4], 0), terms=Rewards({}, {}), thresholded=None)
    got = Rollout.from_bytes(sent.to_bytes())
    assert got.thresholded is None
    assert not got.terms.scores


def test_a_job_is_packed_without_loss() -> None:
    sent = Job(3, 1, np.array([5, 2**40]), 4, scored=True, thresholded=False, bitwise=True)
    packed = sent.packed()
    assert {type(value) for value in packed} == {int, bool, bytes}  # what needs no pickling
    got = Job.unpacked(packed)
    np.testing.assert_array_equal(got.rows, sent.rows)
    assert got.packed() == packed


def test_joined_shards_are_padded_and_carry_the_oldest_version() -> None:
    first = _rollout(2, 3, [4, 7], 0, version=5, bitwise=True)
    second = _rollout(2, 1, [6, 2], 1, version=4, bitwise=True)
    joined = join_rollouts([first, second])
    assert joined.version == 4
    assert [s.shape for s in joined.selections] == [(2, 4, 2, 6), (2, 4, 2, 7)]
    np.testing.assert_array_equal(joined.selections[0][:, :3, :, :4], first.selections[0])
    np.testing.assert_array_equal(joined.selections[1][:, 3:, :, :2], second.selections[1])
    assert not joined.selections[0][:, :3, :, 4:].any()
    np.testing.assert_array_equal(joined.bit_log_prob[0][:, :3, :, :4], first.bit_log_prob[0])
    np.testing.assert_array_equal(joined.bit_log_prob[1][:, 3:, :, :2], second.bit_log_prob[1])
    assert not joined.bit_log_prob[0][:, :3, :, 4:].any()
    np.testing.assert_array_equal(joined.terms.by_sentence[:, 3:], second.terms.by_sentence)
    assert list(joined.terms.scores) == list(first.terms.scores)
    assert list(joined.terms.costs) == list(first.terms.costs)
    np.testing.assert_array_equal(joined.rows, [*first.rows, *second.rows])


def test_reward_is_the_score_minus_the_sentences_own_cost() -> None:
    rollout = _rollout(3, 2, [4, 4], 7)
    for k, b, s in np.ndindex(3, 2, 2):
        score = rollout.terms.scores["right"][k, b] + rollout.terms.scores["fluent"][k, b]
        costs = rollout.terms.costs
        expected = score - (costs["sparsity_cost"][k, b, s] + costs["coherence_cost"][k, b, s])
        assert rollout.terms.by_sentence[k, b, s] == expected
