"""What an episode is: an example, one selection of its tokens, and the reward of that selection.

`SelectionTask` is the functional core. Samplers, evaluation and both Gymnasium environments use the
same object, so what a run trains on is what `gymnasium.make` pays.

Legend: K selections an example, B examples, M = K * B scored selections (sample-major), S sentences
an example, N_s tokens of slot s, C classes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rss_rl.config import RewardConfig, parse_section
from rss_rl.envs.rewards import cost_terms
from rss_rl.errors import ComponentError, ConfigError, NonFiniteError
from rss_rl.reward_models.reward_model import (
    COHERENCE,
    SPARSITY,
    LogitsReward,
    RewardModel,
    Rewards,
    RewardSetup,
    Scores,
    named_scores,
)
from rss_rl.types import ROLES, Array, Batch, ExampleSource

if TYPE_CHECKING:
    from torch import Tensor

    from rss_rl.data.store import Prepared

_TAKEN = frozenset({SPARSITY, COHERENCE, "total", "lambda", "lambda_heads", "lambda_dependents"})
"""Names that a reward model's terms may not have: other metrics are called `reward/<name>`."""
TASK = "TokenSelection"
"""What errors of an environment name as their place."""


@dataclass(frozen=True)
class SelectionTask:
    """One-step episodes over examples, each paid by a reward model less the costs of kept tokens.

    examples         of a split
    model            a reward model, or a function `score(batch, selections)`
    config           costs of kept tokens
    price            lambda of heads and of dependents, where a run was asked for a share and has
                     found it; None: that of the configuration
    bits             that the policy draws for a token: 2, or 1 for both roles
    max_len          tokens of the longest sentence of the data, in any split; 0: of the examples
    vocabulary_size  bound of the token ids; None: unknown

    Raises:
        ConfigError: the model has no `score`.
    """

    examples: ExampleSource
    model: Any
    config: RewardConfig
    price: tuple[float, float] | None = None
    bits: int = ROLES
    max_len: int = 0
    vocabulary_size: int | None = None

    def __post_init__(self) -> None:
        if not callable(getattr(self.model, "score", self.model)):
            raise ConfigError(
                f"{type(self.model).__name__} is not a reward model: it has no `score`",
                where="reward model",
                remedy="Give it score(batch, selections), which returns a float for each selection",
            )

    def observe(self, rows: Sequence[int] | Array) -> Batch:
        """The examples of `rows`, int64 [B]: the state of B episodes.

        Raises:
            ConfigError: a row that does not exist.
        """
        index, size = np.asarray(rows, dtype=np.int64), len(self.examples)
        missing = index[(index < 0) | (index >= size)]
        if missing.size:
            raise ConfigError(
                f"row {missing[0]} does not exist",
                where=TASK,
                remedy=f"Rows are 0 to {size - 1}",
            )
        return self.examples.batch(index)

    def step(
        self,
        batch: Batch,
        selections: Sequence[Array],
        *,
        predict: bool = False,
        logits: Tensor | None = None,
    ) -> Rewards:
        """Rewards of M = K * B selections of B examples, which ends their episodes.

        Args:
            selections: S x bool [K * B, 2, N_s], sample-major: entry k * B + b is of example b.
                Bits on padding are ignored.
            predict: also return the reward model's predictions, if it has any.
            logits: [M, C], the classifier's under these selections, if they are known: a reward
                model that scores by them does not compute them again.

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
        score: Callable[..., Scores] = getattr(self.model, "score", self.model)
        predicted: Array | None = None
        known: AbstractContextManager[None] = nullcontext()
        if isinstance(self.model, LogitsReward) and (predict or logits is not None):
            logits = self.model.logits(repeated, real) if logits is None else logits
            predicted = self.model.predict(logits) if predict else None
            known = self.model.knowing(repeated, real, logits)
        with known:
            scored = score(repeated, real)
        scores = self._named(scored, len(repeated))
        for name, values in scores.items():
            check_finite(f"the reward model's {name}", values, repeated.rows)
        costs = cost_terms(real, repeated.valid, self.config, self.price)
        return Rewards(scores, costs, predicted)

    def _named(self, scores: Scores, count: int) -> dict[str, Array]:
        named = named_scores(scores, count, self.model)
        if taken := sorted(_TAKEN & set(named)):
            raise ComponentError(
                f"the reward model calls a term '{taken[0]}', which is a reserved name",
                where=type(self.model).__name__,
                remedy=f"Choose a name other than {', '.join(sorted(_TAKEN))}",
            )
        return named


def check_finite(what: str, values: Array, rows: Array) -> None:
    """Refuse NaN and infinities in numbers [..., B] of the examples at rows, int64 [B].

    Raises:
        NonFiniteError: naming the number and the row.
    """
    bad = np.argwhere(~np.isfinite(values))
    if len(bad):
        first = tuple(bad[0])
        raise NonFiniteError(
            f"{what} is {values[first]}",
            where=f"row {rows[first[-1]]}",
            remedy="Look for non-finite weights: lower the learning rate or clip gradients",
        )


def build_reward_model(config: RewardConfig, setup: RewardSetup) -> Any:
    """The reward model of a configuration.

    Raises:
        ConfigError: see the component.
    """
    if not config.model.can("classifier"):
        setup = replace(setup, classifier=None)
    return config.model.build(setup)


def make_task(
    examples: ExampleSource | None = None,
    prepared: str | Path | None = None,
    *,
    reward_model: RewardModel | Callable[[Batch, Sequence[Array]], Scores] | None = None,
    split: str = "train",
    bits: int = ROLES,
    max_len: int = 0,
    vocabulary_size: int | None = None,
    **costs: Any,
) -> SelectionTask:
    """A task of examples and a reward model of one's own.

    Args:
        examples, prepared: the examples, or a directory written by `rss-rl data prepare`, or its
            URI. split: of the prepared data.
        costs: keys of the section `reward` of a configuration, such as `sparsity_cost`.
        The others: see `SelectionTask`.

    Raises:
        ConfigError: both or neither of examples and data, no reward model, an empty split, or costs
            out of range or that only a learner can charge.
        DataError: the directory or the split cannot be read.
    """
    if (examples is None) == (prepared is None):
        raise ConfigError(
            "an environment needs either `run`, `examples` or `prepared`",
            where=TASK,
            remedy="Give one of them",
        )
    if reward_model is None:
        raise ConfigError(
            "examples without a run need something that scores selections",
            where=TASK,
            remedy="Give reward_model: a model, or a function score(batch, selections)",
        )
    if learnt := [key for key in ("target_share", "share_schedule") if costs.get(key)]:
        raise ConfigError(
            f"'{learnt[0]}' needs a learner, which moves the cost of a word until the share is met",
            where=TASK,
            remedy="Give sparsity_cost, or a run that was asked for a share",
        )
    if prepared is not None:
        from rss_rl.data.store import open_prepared

        dataset = open_prepared(prepared)
        examples = dataset.split(split)
        max_len = max_len or longest_sentence(dataset)
        vocabulary_size = vocabulary_size or len(dataset.vocabulary)
    assert examples is not None
    config = parse_section(RewardConfig, costs, where=TASK)
    return SelectionTask(
        examples, reward_model, config, bits=bits, max_len=max_len, vocabulary_size=vocabulary_size
    )


def longest_sentence(prepared: Prepared) -> int:
    """Tokens of the longest sentence of any split, so that an agent of one split acts on all."""
    lengths = [prepared.split(name).lengths() for name in prepared.manifest.splits]
    return max(int(each.max(initial=1)) for each in lengths)
