"""Policy updates: how a policy's parameters follow from the rewards of its selections.

A component of kind `policy_update` builds a `PolicyUpdate` from an `UpdateSetup`. It declares as
capabilities what it needs, see `Needs`. Neither sampler nor learner asks which update it is.

Legend: K selections an example, B examples of this learner's shard, S sentences, N_s tokens of
slot s.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor

from rss_rl.config import LearnerConfig, PolicyUpdateConfig, RewardConfig
from rss_rl.errors import ConfigError
from rss_rl.learners.group import ALONE, Group
from rss_rl.models.inputs import TensorBatch
from rss_rl.policies.policy import Policy, PolicyInputs, missing_attributes
from rss_rl.reward_models.reward_model import Rewards


class Needs(NamedTuple):
    """What an update needs of its rollouts; each field is a capability.

    log_probs    rollouts at all: selections that the samplers have drawn and scored; without, the
                 update draws gates, and the classifier reads the first of them
    thresholded  rewards of the thresholded selections, too
    bits         behaviour log-probs of single bits, for selections of an older policy
    antithetic   the second half of an example's selections are drawn from 1 - u where the first
                 half are from u, their uniform numbers
    """

    log_probs: bool
    thresholded: bool
    bits: bool
    antithetic: bool

    @classmethod
    def of(cls, update: PolicyUpdateConfig) -> Needs:
        """Those of the update that the configuration names."""
        return cls(*map(update.can, cls._fields))


class RewardBatch(NamedTuple):
    """A learner's part of a rollout, on its device.

    selections      S x bool [K, B, 2, N_s]
    terms           of their rewards, [K, B]
    thresholded     [B, S], rewards of the thresholded selections; None unless needed
    behaviour       S x [K, B], log-probs under the behaviour policy; None = on-policy
    bit_behaviour   S x [K, B, 2, N_s], of the bits; None = on-policy, or not needed
    """

    selections: Sequence[Tensor]
    terms: Rewards
    thresholded: Tensor | None = None
    behaviour: Sequence[Tensor] | None = None
    bit_behaviour: Sequence[Tensor] | None = None

    @property
    def rewards(self) -> Tensor:
        """[K, B, S], one for each sentence."""
        rewards: Tensor = self.terms.by_sentence
        return rewards


@runtime_checkable
class GatedReward(Protocol):
    """A reward model with the capability `gates`: its score is differentiable in the gates."""

    def gated_scores(self, batch: TensorBatch, gates: Sequence[Tensor]) -> Mapping[str, Tensor]:
        """The terms of the score in nats, [K * B] each, of gates S x [K, B, 2, N_s]; weights are
        fixed.
        """


@dataclass(frozen=True)
class UpdateSetup:
    """What a policy update is built from, besides its options.

    policy    that it trains
    learner   its optimiser, and the entropy cost
    reward    the costs of kept tokens
    autocast  dtype of matrix products, or None for float32
    group     learners that share each batch; unusable after an error in one of them
    uniforms  numbers of a batch and update, S x [K, B, 2, N_s] in (0, 1), the samplers' own
    gated     the reward model, for updates through gates; called when such an update is built
    """

    policy: Policy
    learner: LearnerConfig
    reward: RewardConfig
    autocast: torch.dtype | None = None
    group: Group = ALONE
    uniforms: Callable[[TensorBatch, int], Sequence[Tensor]] | None = None
    gated: Callable[[], GatedReward] | None = None


class Gradients(NamedTuple):
    """Computed gradients, and what the host has yet to read of them.

    numbers  [n] in parts, on the device
    metrics  makes of them the metrics of the global batch, by tag, and clips the gradients; raises
             NonFiniteError on a non-finite loss or gradient
    gates    the first that the update drew for each example, S x [B, 2, N_s], for the classifier
             to read; None: it learns from a rollout
    """

    numbers: Sequence[Tensor]
    metrics: Callable[[list[float]], dict[str, float]]
    gates: list[Tensor] | None = None


def read(gradients: Sequence[Gradients]) -> dict[str, float]:
    """The metrics of all of them, for which the host waits once."""
    scalars: dict[str, float] = {}
    if gradients:
        # As float64, of which one of the parts is.
        numbers = torch.cat([part for each in gradients for part in each.numbers]).tolist()
        for each in gradients:
            count = sum(map(len, each.numbers))
            scalars |= each.metrics(numbers[:count])
            numbers = numbers[count:]
    return scalars


class PolicyUpdate(Protocol):
    """One way to update a policy; it owns its gradient, its optimiser and its state."""

    def gradients(
        self,
        batch: TensorBatch,
        inputs: Sequence[PolicyInputs],
        rollout: RewardBatch | None,
        *,
        number: int,
        price: tuple[float, float] | None,
    ) -> Gradients:
        """Compute the gradients of an update; no parameter changes.

        All learners of the group call it, also with an empty shard.

        Args:
            batch: this learner's shard.
            inputs: what the policy reads of each of its S sentences.
            rollout: of the batch; None for an update without `Needs.log_probs`.
            number: of the update in the run, from 0.
            price: lambda of heads and of dependents as it stands, where a share is asked for. The
                update charges it on the policy's probabilities; rewards lack it.

        Raises:
            LearnerError: another learner of the group died or hung.
        """

    def apply(self) -> None:
        """Apply the gradients, whose metrics were read; until then nothing has changed."""

    def state_dict(self) -> dict[str, Tensor]:
        """All state besides the policy's parameters."""

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Restore `state_dict`.

        Raises:
            CheckpointError: it does not fit.
        """


def under(prefix: str, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The entries whose name begins with `prefix`, without it."""
    return {name[len(prefix) :]: each for name, each in state.items() if name.startswith(prefix)}


def build_update(update: PolicyUpdateConfig, setup: UpdateSetup) -> PolicyUpdate:
    """The policy update that the configuration names.

    Raises:
        ConfigError: what the component builds is not one.
    """
    built: Any = update.build(setup)
    if lacking := missing_attributes(built, PolicyUpdate):
        raise ConfigError(
            f"{type(built).__name__} is not a PolicyUpdate: it has no"
            f" {', '.join(f'`{name}`' for name in lacking)}",
            where=f"policy update '{update.name}'",
            remedy="See rss_rl.learners.updates",
        )
    policy_update: PolicyUpdate = built
    return policy_update
