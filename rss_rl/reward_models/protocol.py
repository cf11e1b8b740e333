"""What a reward model is, and what it is built from.

A component of kind `reward_model` builds an object with `score(batch, selections)`, or a function
of the same arguments. Samplers, evaluation and environments charge the kept tokens themselves: see
`rss_rl.envs.rewards`.

Legend: M scored selections, S sentences an example, N_s tokens of slot s, C classes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np

from rss_rl.errors import ComponentError
from rss_rl.types import Array, Batch, LabelSpec

if TYPE_CHECKING:
    from torch import Tensor, nn

Scores = Array | Mapping[str, Array]
"""float [M], or such by name: terms of the reward that are added up and logged one by one."""


@dataclass(frozen=True)
class RewardSetup:
    """What a reward model is built from, in every process that scores selections.

    labels      what is predicted
    sentences   sentence slots an example has, S
    classifier  of the run, still learning or frozen; None for a component without the capability
                `classifier`
    device      where the classifier's weights live
    words       of the token ids; None where nobody knows them
    """

    labels: LabelSpec
    sentences: int
    classifier: nn.Module | None = None
    device: str = "cpu"
    words: Sequence[str] | None = None


class RewardModel(Protocol):
    """Whatever can tell how good a selection is."""

    def score(self, batch: Batch, selections: Sequence[Array]) -> Scores:
        """The score of each selection: a function of its example and its bits alone.

        Args:
            batch: M examples. An example with several selections comes as often as it has some.
            selections: S x bool [M, 2, N_s], False on padding.

        Returns:
            float [M], or a mapping of names to such arrays, of which the score is the sum. The
            names are the same in every call. In nats, where it shall be of the size of a
            log-likelihood.
        """


@runtime_checkable
class LogitsReward(Protocol):
    """A reward model that sees no more than what the classifier answers to the selection.

    Evaluation, which has asked the classifier already, hands the answer over.
    """

    def score(self, batch: Batch, selections: Sequence[Array]) -> Scores:
        """See `RewardModel.score`."""

    def score_logits(self, logits: Tensor, labels: Array) -> Scores:
        """What `score` returns where the classifier answers these logits.

        Args:
            logits: [M, C], of the classifier in evaluation mode.
            labels: [M], see `Batch.labels`.
        """


def named_scores(scores: Any, count: int, model: Any) -> dict[str, Array]:
    """Scores as float32 arrays by name; an array alone is named `score`.

    Raises:
        ComponentError: no such scores, or not `count` of them.
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
        remedy=remedy or "Return one number for each selection, or a mapping of names to such",
    )
