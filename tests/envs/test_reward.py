"""The task: one call of its reward model, terms by name, padding ignored, K selections."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rss_rl.config import RewardConfig
from rss_rl.envs.task import SelectionTask
from rss_rl.errors import ComponentError, ConfigError, NonFiniteError


def _selections(examples: Any, rows: Any, samples: int, seed: int = 0) -> list[Any]:
    draw = np.random.default_rng(seed)
    batch = examples.batch(rows)
    return [draw.random((samples * len(rows), 2, v.shape[1])) < 0.5 for v in batch.valid]


def test_k_selections_go_through_the_reward_model_as_one_batch(
    examples: Any, reward_model: Any
) -> None:
    task = SelectionTask(examples, reward_model, RewardConfig(sparsity_cost=0.1))
    rows, samples = [3, 0, 5], 4
    selections = _selections(examples, rows, samples)
    batch = examples.batch(rows)
    parts = task.step(batch, selections)
    assert reward_model.calls == [12]
    for k in range(samples):
        alone = task.step(batch, [s[3 * k : 3 * k + 3] for s in selections])
        np.testing.assert_array_equal(parts.total[3 * k : 3 * k + 3], alone.total)
        np.testing.assert_array_equal(parts.by_sentence[3 * k : 3 * k + 3], alone.by_sentence)


def test_bits_on_padding_change_nothing(examples: Any) -> None:
    def kept(batch: Any, selections: Any) -> Any:
        return -np.sum([s.sum((1, 2)) for s in selections], axis=0)

    rows = list(range(len(examples)))
    task = SelectionTask(examples, kept, RewardConfig(sparsity_cost=0.5))
    batch = examples.batch(rows)
    assert not all(v.all() for v in batch.valid)
    selections = _selections(examples, rows, 1)
    noisy = [s | ~v[:, None] for s, v in zip(selections, batch.valid, strict=True)]
    clean = task.step(batch, selections).total
    np.testing.assert_array_equal(clean, task.step(batch, noisy).total)


def test_the_total_is_the_sum_of_the_terms(examples: Any, reward_model: Any) -> None:
    def two(batch: Any, selections: Any) -> Any:
        score = reward_model.score(batch, selections)
        return {"right": score, "fluent": batch.rows / 7}

    config = RewardConfig(sparsity_cost=0.3, coherence_cost=0.7)
    batch = examples.batch([4, 1, 6])
    parts = SelectionTask(examples, two, config).step(batch, _selections(examples, batch.rows, 2))
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

    task = SelectionTask(examples, broken, RewardConfig())
    with pytest.raises(NonFiniteError, match=r"row 5: .*'?odd'? is nan"):
        task.step(examples.batch([1, 5]), _selections(examples, [1, 5], 2))


def test_selections_that_do_not_fit_are_refused(examples: Any, reward_model: Any) -> None:
    task, batch = SelectionTask(examples, reward_model, RewardConfig()), examples.batch([1, 2])
    with pytest.raises(ValueError, match="5 selections"):
        task.step(batch, [s[:5] for s in _selections(examples, [1, 2], 3)])
    with pytest.raises(ValueError, match="0 selections"):
        task.step(batch, [])


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
    task = SelectionTask(examples, lambda batch, selections: said(len(batch)), RewardConfig())
    with pytest.raises(ComponentError, match=fragment):
        task.step(examples.batch([1, 2]), _selections(examples, [1, 2], 1))


def test_what_cannot_score_is_refused(examples: Any) -> None:
    with pytest.raises(ConfigError, match="has no `score`"):
        SelectionTask(examples, object(), RewardConfig())


def test_under_a_share_each_role_is_charged_its_lambda(examples: Any, reward_model: Any) -> None:
    config = RewardConfig(sparsity_cost=0.3, target_share=0.4, coherence_cost=0.1)
    batch = examples.batch([4, 1, 6])
    selections = _selections(examples, batch.rows, 2)
    without = SelectionTask(examples, reward_model, config).step(batch, selections)
    assert not without.costs["sparsity_cost"].any()
    paid = SelectionTask(examples, reward_model, config, (0.7, -0.2)).step(batch, selections)
    for slot, valid in enumerate(batch.repeat(2).valid):
        bits, sizes = selections[slot] & valid[:, None], valid.sum(1)
        expected = 0.7 * bits[:, 0].sum(1) / sizes - 0.2 * bits[:, 1].sum(1) / sizes
        np.testing.assert_allclose(paid.costs["sparsity_cost"][:, slot], expected, atol=1e-6)
    difference = without.total - paid.total
    np.testing.assert_allclose(difference, paid.costs["sparsity_cost"].sum(1), atol=1e-6)
