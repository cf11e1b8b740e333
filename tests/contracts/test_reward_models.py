"""check_reward_model passes what keeps its promises, and finds each planted fault."""

from __future__ import annotations

from typing import Any

import numpy as np
import plugged_rewards
import pytest
import small
import torch
from random_batches import random_batch, random_selections

from rss_rl.components import Component, find_component
from rss_rl.config import RewardConfig
from rss_rl.envs.task import SelectionTask
from rss_rl.errors import ComponentError
from rss_rl.reward_models.likelihood import ClassifierReward, ComplementReward
from rss_rl.testing import check_reward_model
from rss_rl.types import Array, LabelSpec

TASKS = {
    "classes": LabelSpec("classes", ("no", "maybe", "yes")),
    "score": LabelSpec("score", low=1.0, high=5.0),
}


def kept(selections: Any) -> Array:
    return sum(s.sum((1, 2)) for s in selections) / 10  # type: ignore[no-any-return]


@pytest.mark.parametrize("complement", [0.0, 0.5])
@pytest.mark.parametrize("task", list(TASKS))
def test_the_likelihood_keeps_its_promises(task: str, complement: float) -> None:
    labels = TASKS[task]
    check_reward_model(
        find_component("reward_model", "likelihood"),
        labels=labels,
        options={"complement": complement},
    )


def test_the_complement_is_what_the_tokens_left_out_tell() -> None:
    batch = random_batch(2)
    selections = random_selections(batch)
    classifier = small.classifier(double=False)
    likelihood = ClassifierReward(classifier)
    found = ComplementReward(classifier, 0.5).score(batch, selections)
    rest = [v[:, None] & ~s for s, v in zip(selections, batch.valid, strict=True)]
    output = np.exp(likelihood.score(batch, rest)["log_likelihood"])
    np.testing.assert_allclose(found["complement"], -0.5 * output, rtol=1e-6)
    wanted = likelihood.score(batch, selections)["log_likelihood"]
    np.testing.assert_array_equal(found["log_likelihood"], wanted)
    assert found["complement"].dtype == np.float32


class Negated(ClassifierReward):
    """Another score, from logits of other selections, too."""

    def score(self, batch: Any, selections: Any) -> Any:
        (most,) = super().score(batch, [np.ones_like(s) for s in selections]).values()
        (likely,) = super().score(batch, selections).values()
        return {"negated": -likely, "most": most}


@pytest.mark.parametrize("asked", [{}, {"predict": True}, {"logits": True}])
def test_what_overrides_score_is_paid_by_it_wherever_a_selection_is_scored(asked: Any) -> None:
    classifier, batch = small.classifier(double=False), random_batch(2)
    selections, plain = random_selections(batch), ClassifierReward(classifier)
    if asked.get("logits"):
        asked = {"logits": plain.logits(batch, selections)}
    everything = plain.score(batch, [v[:, None].repeat(2, 1) for v in batch.valid])
    examples: Any = None  # of which only rows that are asked for matter
    paid = SelectionTask(examples, Negated(classifier), RewardConfig()).step(
        batch, selections, **asked
    )
    wanted = -plain.score(batch, selections)["log_likelihood"] + everything["log_likelihood"]
    np.testing.assert_allclose(paid.score, wanted, atol=1e-5)
    assert (paid.predicted is not None) == bool(asked.get("predict"))


def test_a_rule_keeps_its_promises() -> None:
    check_reward_model(plugged_rewards.RULE, options={"weight": 3.0}, sentences=2)
    check_reward_model(by_rule)


def by_rule(batch: Any, selections: Any) -> Array:
    return kept(selections) * (batch.labels + 1)


def noisy(batch: Any, selections: Any) -> Array:
    return kept(selections) + np.random.default_rng().random(len(batch))


def of_padding(batch: Any, selections: Any) -> Array:
    return kept(selections) / batch.tokens[0].shape[1]


def of_the_batch(batch: Any, selections: Any) -> Array:
    return kept(selections) - kept(selections).mean()


def changing(batch: Any, selections: Any) -> Array:
    selections[0][:] = False
    return kept(selections)


def column(batch: Any, selections: Any) -> Array:
    return kept(selections)[:, None]


def by_row_alone(batch: Any, selections: Any) -> Array:
    """The first selection of a row is taken for all of them."""
    first = {row: value for row, value in zip(batch.rows[::-1], kept(selections)[::-1])}  # noqa
    seen = len(set(batch.rows)) < len(batch)
    return np.array([first[r] for r in batch.rows]) * (1 + seen)


@pytest.mark.parametrize(
    ("model", "fragment"),
    [
        (noisy, "from call to call"),
        (of_padding, "differently alone"),
        (of_the_batch, "differently alone"),
        (changing, "changes its arguments"),
        (column, "of shape"),
        (by_row_alone, "differently alone"),
        (object(), "has no `score`"),
    ],
)
def test_a_planted_fault_is_found(model: Any, fragment: str) -> None:
    with pytest.raises(ComponentError, match=fragment):
        check_reward_model(model)


class WithDropout(ClassifierReward):
    def score(self, batch: Any, selections: Any) -> Any:
        chosen = [torch.from_numpy(np.ascontiguousarray(s)) for s in selections]
        tokens, valid = ([torch.from_numpy(a) for a in b] for b in (batch.tokens, batch.valid))
        with torch.inference_mode():
            logits = self._classifier(tokens, valid, chosen)
        return {"first": logits[:, 0].numpy()}


class StaysInEvaluation(ClassifierReward):
    def score(self, batch: Any, selections: Any) -> Any:
        self._classifier.eval()
        return super().score(batch, selections)


@pytest.mark.parametrize(
    ("kind", "fragment"),
    [
        (WithDropout, "from call to call"),
        (StaysInEvaluation, "evaluation mode"),
    ],
)
def test_faults_of_those_that_ask_the_classifier(kind: Any, fragment: str) -> None:
    component = Component(
        kind="reward_model",
        name="faulty",
        help="Faulty.",
        build=lambda setup, options: kind(setup.classifier),
        capabilities=frozenset({"classifier"}),
    )
    with pytest.raises(ComponentError, match=fragment):
        check_reward_model(component)
