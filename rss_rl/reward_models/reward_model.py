"""The interface of reward models, their setup, and rewards by their terms.

A component of kind `reward_model` builds an object with `score(batch, selections)`, or a function
of the same arguments. Samplers, evaluation and environments subtract the sparsity cost themselves:
see `rss_rl.envs.rewards`.

Legend: M scored selections, K of each of B examples, S sentences per example, N_s tokens of slot s,
C classes.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np

from rss_rl.errors import ComponentError
from rss_rl.types import Array, Batch, LabelSpec

if TYPE_CHECKING:
    from torch import Tensor, nn

SPARSITY, COHERENCE = "sparsity_cost", "coherence_cost"
"""Names of the costs of kept tokens, which are no terms of a reward model."""
Scores = Array | Mapping[str, Array]
"""float [M], or such by name: terms of the reward, which are summed, and logged separately."""


@dataclass(frozen=True)
class RewardSetup:
    """What a reward model is built from, in every process that scores selections.

    labels      what is predicted
    sentences   sentence slots of an example, S
    classifier  of the run, in training or frozen; None for a component without the capability
                `classifier`
    device      of the classifier's weights
    words       of the token ids; None if unknown
    """

    labels: LabelSpec
    sentences: int
    classifier: nn.Module | None = None
    device: str = "cpu"
    words: Sequence[str] | None = None


@dataclass(frozen=True)
class Rewards:
    """Terms of the rewards of scored selections: arrays, or tensors on a learner's device, float32.

    Legend: [...] is [M], of M selections one below the other, or [K, B].

    scores     of the reward model, [...] each, by name
    costs      of kept tokens, [..., S] each, by name
    predicted  labels that the reward model predicts, [M]; None where it was not asked or has none
    """

    scores: Mapping[str, Any]
    costs: Mapping[str, Any]
    predicted: Array | None = None

    @cached_property
    def score(self) -> Any:
        """The sum of the scores, [...]."""
        return reduce(operator.add, self.scores.values())

    @cached_property
    def cost(self) -> Any:
        """The sum of the costs, [..., S]."""
        return reduce(operator.add, self.costs.values())

    @cached_property
    def by_sentence(self) -> Any:
        """R_s = score - cost_s, [..., S]."""
        return self.score[..., None] - self.cost

    @cached_property
    def total(self) -> Any:
        """R = score - sum_s cost_s, [...]."""
        return self.score - self.cost.sum(-1)

    def each(self, change: Callable[[Any], Any]) -> Rewards:
        """All terms, changed alike."""
        return Rewards(
            {name: change(term) for name, term in self.scores.items()},
            {name: change(term) for name, term in self.costs.items()},
        )


class RewardModel(Protocol):
    """An object that scores selections."""

    def score(self, batch: Batch, selections: Sequence[Array]) -> Scores:
        """The score of each selection: a function of only its example and its bits.

        Args:
            batch: M examples. An example is repeated for each of its selections.
            selections: S x bool [M, 2, N_s], False on padding.

        Returns:
            float [M], or a mapping of names to such arrays, whose sum is the score. The names are
            the same in every call. In nats, if it is to be of the size of a log-likelihood.
        """


@runtime_checkable
class LogitsReward(RewardModel, Protocol):
    """A reward model that scores by the classifier's logits, which evaluation also needs."""

    def logits(self, batch: Batch, selections: Sequence[Array]) -> Tensor:
        """The classifier's, in evaluation mode, [M, C]; what `score` asks for."""

    def knowing(
        self, batch: Batch, selections: Sequence[Array], logits: Tensor
    ) -> AbstractContextManager[None]:
        """Within, `logits` of these arguments returns this tensor instead of computing it again."""

    def predict(self, logits: Tensor) -> Array | None:
        """The predicted labels [M], for `info` of an episode; None if it predicts none."""


def named_scores(scores: Any, count: int, model: Any) -> dict[str, Array]:
    """Scores as float32 arrays by name; an array alone is named `score`.

    Raises:
        ComponentError: invalid scores, or not `count` of them.
    """
    named = dict(scores) if isinstance(scores, Mapping) else {"score": scores}
    if not named:
        raise _wrong(model, "returned no term")
    result = {}
    for name, values in named.items():
        if not (isinstance(name, str) and name.isidentifier()):
            raise _wrong(model, f"names a term {name!r:.80}", "Use letters, digits and _")
        try:
            array = np.asarray(values, dtype=np.float32)
        except (TypeError, ValueError) as error:
            raise _wrong(model, f"returned no numbers as '{name}': {error}") from error
        if array.shape != (count,):
            raise _wrong(model, f"returned '{name}' of shape {array.shape}, not ({count},)")
        result[name] = array
    return result


def _wrong(model: Any, what: str, remedy: str = "") -> ComponentError:
    kind = type(model).__name__
    where = getattr(model, "__name__", kind) if kind == "function" else kind
    return ComponentError(
        f"the reward model {what}",
        where=where,
        remedy=remedy or "Return one number for each selection, or a mapping of names to these",
    )
