"""A reward model that needs no classifier, which tests plug in by its name here."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from pydantic import Field

from rss_rl.components import Component, Options
from rss_rl.reward_models.reward_model import RewardSetup
from rss_rl.types import Array, Batch


class RuleOptions(Options):
    weight: float = Field(default=1.0, gt=0)


class Rule:
    """Pays for each kept token whose word has the letter a, and a little for any."""

    def __init__(self, setup: RewardSetup, options: RuleOptions) -> None:
        assert setup.words is not None
        assert setup.classifier is None
        self._good = np.array(["a" in word for word in setup.words])
        self._weight = options.weight

    def score(self, batch: Batch, selections: Sequence[Array]) -> dict[str, Array]:
        good = sum(
            (kept.any(1) & self._good[tokens]).sum(1)
            for kept, tokens in zip(selections, batch.tokens, strict=True)
        )
        kept = sum(kept.any(1).sum(1) for kept in selections)
        return {"good": self._weight * np.asarray(good), "kept_words": 0.01 * np.asarray(kept)}


RULE = Component(
    kind="reward_model",
    name="rule",
    help="Words with an a.",
    build=Rule,
    options=RuleOptions,
)


def score(batch: Batch, selections: Sequence[Array]) -> Array:
    """A tenth for each kept word."""
    return sum(kept.any(1).sum(1) for kept in selections) / np.float32(10)
