"""The reward of a selection: the reward model's score minus the cost of the kept tokens.

    R_s = score - sum_t cost_t,s          reward of sentence s
    R   = score - sum_t sum_s cost_t,s    reward of the example

over cost terms t; for a sentence of n real tokens with h heads and d dependents

    sparsity_cost  = lambda * (h + d) / n          penalty "sum", the paper
                   = lambda * (h / n) * (d / n)    penalty "product", the released program
    coherence_cost = c * changes / n               only if c is not 0

The score is that of the component in `reward.model`: by default log p(y* | x*, selection), as in
the paper. A target share is not a term of the reward: see `rss_rl.learners.share_control`.

Legend: M scored selections (K * B, sample-major), S sentences an example, N tokens of a slot.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np

from rss_rl.config import RewardConfig
from rss_rl.errors import ComponentError, ConfigError, NonFiniteError
from rss_rl.reward_models.protocol import (
    LogitsReward,
    RewardModel,
    RewardSetup,
    Scores,
    named_scores,
)
from rss_rl.types import DEPENDENT, HEAD, ROLES, Array, Batch

if TYPE_CHECKING:
    from torch import Tensor

Penalty = Literal["sum", "product"]
SPARSITY, COHERENCE = "sparsity_cost", "coherence_cost"
"""Names of the cost terms."""
_TAKEN = frozenset({SPARSITY, COHERENCE, "total", "lambda", "lambda_heads", "lambda_dependents"})
"""Names that a reward model's terms may not have: other metrics are called `reward/<name>`."""


@dataclass(frozen=True)
class RewardParts:
    """Rewards of M scored selections, and their terms, float32.

    scores  of the reward model, [M] each, by name
    costs   of kept tokens, [M, S] each, by name
    """

    scores: Mapping[str, Array]
    costs: Mapping[str, Array]

    @cached_property
    def score(self) -> Array:
        """The sum of the scores, [M]."""
        return _sum(self.scores)

    @cached_property
    def cost(self) -> Array:
        """The sum of the costs, [M, S]."""
        return _sum(self.costs)

    @cached_property
    def by_sentence(self) -> Array:
        """R_s, [M, S]."""
        return self.score[:, None] - self.cost

    @cached_property
    def total(self) -> Array:
        """R, [M]."""
        return cast(Array, self.score - self.cost.sum(1))


def _sum(terms: Mapping[str, Array]) -> Array:
    return reduce(operator.add, terms.values())


def penalties(selection: Array, valid: Array, penalty: Penalty) -> Array:
    """The penalty of each selection of one sentence slot; 0 for an empty sentence.

    Args:
        selection: bool [M, 2, N]; bits on padding are ignored.
        valid: bool [M, N].

    Returns:
        float32 [M].

    Raises:
        ValueError: shapes or dtypes that do not fit.
    """
    if valid.ndim != 2 or valid.dtype != np.bool_:
        raise ValueError(f"valid must be bool [M, N], got {valid.dtype} {valid.shape}")
    expected = (valid.shape[0], ROLES, valid.shape[1])
    if selection.dtype != np.bool_ or selection.shape != expected:
        raise ValueError(
            f"selection must be bool {expected}, got {selection.dtype} {selection.shape}"
        )
    kept = (selection & valid[:, None, :]).sum(-1)  # [M, 2]
    shares = kept / np.maximum(valid.sum(-1), 1)[:, None]  # [M, 2]
    if penalty == "sum":
        charged = shares[:, HEAD] + shares[:, DEPENDENT]
    else:
        charged = shares[:, HEAD] * shares[:, DEPENDENT]
    return cast(Array, charged.astype(np.float32))


def change_shares(selection: Array, valid: Array) -> Array:
    """Bit changes between neighbouring tokens, of both roles, divided by n; float32 [M].

    sum_i |z_{i+1} - z_i| / n, the fused lasso of Lei, Barzilay and Jaakkola (EMNLP 2016).

    Args:
        selection: bool [M, 2, N]. valid: bool [M, N], True first.
    """
    neighbours = (valid[:, 1:] & valid[:, :-1])[:, None]  # [M, 1, N - 1]
    changed = (selection[..., 1:] != selection[..., :-1]) & neighbours
    shares = changed.sum((-1, -2)) / np.maximum(valid.sum(-1), 1)
    return cast(Array, shares.astype(np.float32))


def rewards(
    scores: Mapping[str, Array],
    selections: Sequence[Array],
    valid: Sequence[Array],
    config: RewardConfig,
) -> RewardParts:
    """The rewards of M selections, by term, by sentence and in total.

    Args:
        scores: float32 [M] each, by name; at least one.
        selections: S x bool [M, 2, N_s].
        valid: S x bool [M, N_s].
        config: costs of kept tokens; the sparsity cost is 0 with a target share.

    Raises:
        ValueError: shapes or dtypes that do not fit.
    """
    if len(selections) != len(valid) or not selections:
        raise ValueError(f"{len(selections)} selections for {len(valid)} sentences")
    for name, values in scores.items():
        if values.shape != (len(valid[0]),):
            raise ValueError(f"{name} must be [{len(valid[0])}], got {list(values.shape)}")
    pairs = list(zip(selections, valid, strict=True))
    charged = np.stack([penalties(s, v, config.penalty) for s, v in pairs], axis=1)  # [M, S]
    costs: dict[str, Array] = {SPARSITY: np.float32(config.fixed_cost) * charged}
    if config.coherence_cost:
        turns = np.stack([change_shares(s, v) for s, v in pairs], axis=1)
        costs[COHERENCE] = np.float32(config.coherence_cost) * turns
    return RewardParts({name: v.astype(np.float32) for name, v in scores.items()}, costs)


class Reward:
    """The reward of a run: a reward model's score minus the costs of kept tokens.

    Samplers, evaluation and both Gymnasium environments share this definition.

    Args:
        config: costs of kept tokens.
        model: a reward model, or a function `score(batch, selections)`.

    Raises:
        ConfigError: the model has no `score`.
    """

    def __init__(
        self,
        config: RewardConfig,
        model: RewardModel | Callable[[Batch, Sequence[Array]], Scores],
    ) -> None:
        self.config = config
        self.model: Any = model
        self._score: Any = getattr(model, "score", model)
        if not callable(self._score):
            raise ConfigError(
                f"{type(model).__name__} is not a reward model: it has no `score`",
                where="reward model",
                remedy="Give it score(batch, selections), which returns a float for each selection",
            )

    @classmethod
    def build(cls, config: RewardConfig, setup: RewardSetup) -> Reward:
        """The reward of a configuration.

        Raises:
            ConfigError: see the component.
        """
        if not config.model.can("classifier"):
            setup = replace(setup, classifier=None)
        return cls(config, config.model.build(setup))

    def score(self, batch: Batch, selections: Sequence[Array]) -> RewardParts:
        """Rewards of M = K * B selections of B examples, with one call of the reward model.

        Args:
            selections: S x bool [K * B, 2, N_s], sample-major: entry k * B + b is of example b.
                Bits on padding are ignored.

        Raises:
            ValueError: selections that do not fit the examples.
            NonFiniteError: the reward model returned NaN or an infinity.
            ComponentError: it did not return one number for each selection.
        """
        count = len(selections[0]) if selections else 0
        fits = count > 0 and len(batch) > 0 and count % len(batch) == 0
        if len(selections) != batch.sentences or not fits:
            raise ValueError(
                f"{count} selections of {len(selections)} sentences for {len(batch)} examples"
                f" of {batch.sentences} sentences"
            )
        repeated = batch.repeat(count // len(batch))
        # Bits on padding must not reach the reward model.
        real = [s & v[:, None, :] for s, v in zip(selections, repeated.valid, strict=True)]
        scores = self._named(self._score(repeated, real), count)
        _check_finite(scores, repeated.rows)
        return rewards(scores, real, repeated.valid, self.config)

    def score_logits(
        self, logits: Tensor, batch: Batch, selections: Sequence[Array]
    ) -> RewardParts:
        """As `score` with one selection an example, when the classifier's logits are known.

        A reward model that depends only on the logits takes them instead of a second forward.

        Args:
            logits: [B, C], of the run's classifier under the selections.
            selections: S x bool [B, 2, N_s], False on padding.
        """
        if not isinstance(self.model, LogitsReward):
            return self.score(batch, selections)
        scores = self._named(self.model.score_logits(logits, batch.labels), len(batch))
        return rewards(scores, selections, batch.valid, self.config)

    def _named(self, scores: Scores, count: int) -> dict[str, Array]:
        named = named_scores(scores, count, self.model)
        if taken := sorted(_TAKEN & set(named)):
            raise ComponentError(
                f"the reward model calls a term '{taken[0]}', which is a reserved name",
                where=type(self.model).__name__,
                remedy=f"Choose a name other than {', '.join(sorted(_TAKEN))}",
            )
        return named


def _check_finite(scores: Mapping[str, Array], rows: Array) -> None:
    for name, values in scores.items():
        finite = np.isfinite(values)
        if not finite.all():
            bad = int(np.flatnonzero(~finite)[0])
            raise NonFiniteError(
                f"the reward model's {name} is {values[bad]}",
                where=f"row {rows[bad]}",
                remedy="Look for non-finite weights: lower the learning rate or clip gradients",
            )
