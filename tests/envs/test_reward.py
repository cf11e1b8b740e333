"""The reward of a run: one call of its model, terms by name, padding ignored, K selections."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rss_rl.config import RewardConfig
from rss_rl.envs.rewards import Reward
from rss_rl.errors import ComponentError, ConfigError, NonFiniteError


def _selections(examples: Any, rows: Any, samples: int, seed: int = 0) -> list[Any]:
    draw = np.random.default_rng(seed)
    batch = examples.batch(rows)
    return [draw.random((samples * len(rows), 2, v.shape[1])) < 0.5 for v in batch.valid]


def test_k_selections_go_through_the_reward_model_as_one_batch(
    examples: Any, reward_model: Any
) -> None:
    reward = Reward(RewardConfig(sparsity_cost=0.1), reward_model)
    rows, samples = [3, 0, 5], 4
    selections = _selections(examples, rows, samples)
    batch = examples.batch(rows)
    parts = reward.score(batch, selections)
    assert reward_model.calls == [12]
    for k in range(samples):
        alone = reward.score(batch, [s[3 * k : 3 * k + 3] for s in selections])
        np.testing.assert_array_equal(parts.total[3 * k : 3 * k + 3], alone.total)
        np.testing.assert_array_equal(parts.by_sentence[3 * k : 3 * k + 3], alone.by_sentence)


def test_bits_on_padding_change_nothing(examples: Any) -> None:
    def kept(batch: Any, selections: Any) -> Any:
        return -np.sum([s.sum((1, 2)) for s in selections], axis=0)

    reward, rows = Reward(RewardConfig(sparsity_cost=0.5), kept), list(range(len(examples)))
    batch = examples.batch(rows)
    assert not all(v.all() for v in batch.valid)
    selections = _selections(examples, rows, 1)
    noisy = [s | ~v[:, None] for s, v in zip(selections, batch.valid, strict=True)]
    clean = reward.score(batch, selections).total
    np.testing.assert_array_equal(clean, reward.score(batch, noisy).total)


def test_the_total_is_the_sum_of_the_terms(examples: Any, reward_model: Any) -> None:
    def two(batch: Any, selections: Any) -> Any:
        score = reward_model.score(batch, selections)
        return {"right": score, "fluent": batch.rows / 7}

    config = RewardConfig(sparsity_cost=0.3, coherence_cost=0.7)
    batch = examples.batch([4, 1, 6])
    parts = Reward(config, two).score(batch, _selections(examples, batch.rows, 2))
    assert [list(parts.scores), list(parts.costs)] == [
        ["right", "fluent"],
        ["sparsity_cost", "coherence_cost"],
    ]
    score = parts.scores["right"] + parts.scores["fluent"]
    cost = parts.costs["sparsity_cost"] + parts.costs["coherence_cost"]
    assert cost.shape == (6, batch.sentences)
    assert (parts.costs["coherence_cost"] > 0).any()
    np.testing.assert_array_equal(parts.by_sentence, score[:, None] - cost)
    np.testing.assert_array_equal(parts.total, score - cost.sum(1))
    assert parts.total.dtype == np.float32


def test_a_non_finite_score_names_row_and_term(examples: Any) -> None:
    def broken(batch: Any, selections: Any) -> Any:
        return {"odd": np.where(batch.rows == 5, np.nan, -1.0)}

    reward = Reward(RewardConfig(), broken)
    with pytest.raises(NonFiniteError, match=r"row 5: .*'?odd'? is nan"):
        reward.score(examples.batch([1, 5]), _selections(examples, [1, 5], 2))


def test_selections_that_do_not_fit_are_refused(examples: Any, reward_model: Any) -> None:
    reward, batch = Reward(RewardConfig(), reward_model), examples.batch([1, 2])
    with pytest.raises(ValueError, match="5 selections"):
        reward.score(batch, [s[:5] for s in _selections(examples, [1, 2], 3)])
    with pytest.raises(ValueError, match="0 selections"):
        reward.score(batch, [])


@pytest.mark.parametrize(
    ("said", "fragment"),
    [
        (lambda count: np.zeros((count, 1)), "of shape"),
        (lambda count: ["good"] * count, "no numbers"),
        (lambda count: {}, "no term"),
        (lambda count: {"a b": np.zeros(count)}, "names a term 'a b'"),
        (lambda count: {"sparsity_cost": np.zeros(count)}, "reserved name"),
    ],
)
def test_what_is_no_score_is_refused(examples: Any, said: Any, fragment: str) -> None:
    reward = Reward(RewardConfig(), lambda batch, selections: said(len(batch)))
    with pytest.raises(ComponentError, match=fragment):
        reward.score(examples.batch([1, 2]), _selections(examples, [1, 2], 1))


def test_what_cannot_score_is_refused() -> None:
    with pytest.raises(ConfigError, match="has no `score`"):
        Reward(RewardConfig(), object())  # type: ignore[arg-type]
