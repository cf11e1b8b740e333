"""The environment's core: one reward-model call, padding ignored, K selections an example."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from envs.core import SelectionCore
from envs.rewards import RewardSpec
from rss_rl.errors import NonFiniteError


def _selections(examples: Any, rows: Any, samples: int, seed: int = 0) -> list[Any]:
    draw = np.random.default_rng(seed)
    batch = examples.batch(rows)
    return [draw.random((samples * len(rows), 2, v.shape[1])) < 0.5 for v in batch.valid]


def test_k_selections_go_through_the_reward_model_as_one_batch(
    examples: Any, reward_model: Any
) -> None:
    core = SelectionCore(examples, reward_model, RewardSpec(0.1))
    rows, samples = [3, 0, 5], 4
    selections = _selections(examples, rows, samples)
    parts = core.score(rows, selections)
    assert reward_model.calls == [12]
    for k in range(samples):
        alone = core.score(rows, [s[3 * k : 3 * k + 3] for s in selections])
        np.testing.assert_array_equal(parts.total[3 * k : 3 * k + 3], alone.total)
        np.testing.assert_array_equal(parts.by_sentence[3 * k : 3 * k + 3], alone.by_sentence)


def test_rows_and_their_batch_score_alike(examples: Any, reward_model: Any) -> None:
    core = SelectionCore(examples, reward_model, RewardSpec(0.1))
    selections = _selections(examples, [1, 2], 1)
    by_rows = core.score([1, 2], selections)
    by_batch = core.score(examples.batch([1, 2]), selections)
    np.testing.assert_array_equal(by_rows.total, by_batch.total)


def test_bits_on_padding_change_nothing(examples: Any) -> None:
    class Seen:
        def log_likelihood(self, batch: Any, selections: Any) -> Any:
            return -np.sum([s.sum((1, 2)) for s in selections], axis=0).astype(np.float32)

    core, rows = SelectionCore(examples, Seen(), RewardSpec(0.5)), list(range(len(examples)))
    batch = examples.batch(rows)
    assert not all(v.all() for v in batch.valid)
    selections = _selections(examples, rows, 1)
    noisy = [s | ~v[:, None] for s, v in zip(selections, batch.valid, strict=True)]
    np.testing.assert_array_equal(core.score(rows, selections).total, core.score(rows, noisy).total)


def test_a_non_finite_likelihood_names_the_row(examples: Any) -> None:
    class Broken:
        def log_likelihood(self, batch: Any, selections: Any) -> Any:
            return np.where(batch.rows == 5, np.nan, -1.0).astype(np.float32)

    core = SelectionCore(examples, Broken(), RewardSpec())
    with pytest.raises(NonFiniteError, match="row 5"):
        core.score([1, 5], _selections(examples, [1, 5], 2))


def test_selections_that_do_not_fit_are_refused(examples: Any, reward_model: Any) -> None:
    core = SelectionCore(examples, reward_model, RewardSpec())
    with pytest.raises(ValueError, match="5 selections"):
        core.score([1, 2], [s[:5] for s in _selections(examples, [1, 2], 3)])
    with pytest.raises(ValueError, match="0 selections"):
        core.score([1, 2], [])
