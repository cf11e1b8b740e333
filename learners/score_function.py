"""Policy updates by the score function: log-probs weighed by advantages.

    gradient of E[sum_s R_s] = E[sum_s A_s d log p(selection_s)],    A = R - baseline

A sentence's selection is credited with its own reward R_s: the other sentences' costs do not depend
on it, so omitting them lowers the variance without bias. The likelihood in R_s depends on the
selections of all sentences, and so does the importance weight of a stale selection, see
`rss_rl.ops.importance`.

Legend: K selections an example, B examples of this learner's shard, S sentences, N_s tokens of
slot s.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from rss_rl.components import Component, Options
from rss_rl.learners.group import sum_and_max
from rss_rl.learners.optim import GradientStep
from rss_rl.learners.updates import Gradients, RewardBatch, UpdateSetup, under
from rss_rl.models.inputs import TensorBatch
from rss_rl.ops import advantages
from rss_rl.ops.importance import (
    Correction,
    Weighted,
    clipped_token,
    ratio_sums,
    truncated_sum,
)
from rss_rl.ops.losses import policy_gradient_loss, role_cost
from rss_rl.ops.matmul import products_in
from rss_rl.policies.distributions import SelectionDistribution
from rss_rl.policies.policy import Policy, PolicyInputs

_MOMENTUM = 0.95
"""Of the moving average of rewards."""
Baseline = Literal["none", "moving-average", "self-critical", "leave-one-out"]
Surrogate = Callable[
    [Sequence[SelectionDistribution], Sequence[Tensor], RewardBatch, Tensor], Weighted
]
"""(distributions, log-probs S x [K, B, 2, N_s], rewards, advantages [K, B, S]) to the losses
S x [K, B] whose gradient, over K B, is minus that of the expected reward."""


class BaselineOptions(Options):
    """Options of the baseline."""

    baseline: Baseline = "leave-one-out"
    """What is subtracted from rewards: a running mean of them, the reward of the thresholded
    selection, or the mean of the example's other selections.
    """


class ReinforceOptions(BaselineOptions):
    """Options of the baseline and of the off-policy correction."""

    ratio_max: float = Field(default=2.0, ge=1)
    """Largest importance ratio of a whole selection that an older policy drew (V-trace)."""


class PPOClipOptions(BaselineOptions):
    """Options of the baseline and the clipping."""

    ratio_clip: float = Field(default=0.2, gt=0, lt=1)
    """epsilon: ratios stay in [1 - epsilon, 1 + epsilon]."""


def corrected(
    correction: Correction | None = None, limit: float = 0.0, *, bits: bool = False
) -> Surrogate:
    """-A log p, weighed by importance ratios where an older policy drew the selections.

    Args:
        correction: None = all count as drawn by the target policy. limit: of its ratios.
        bits: it takes behaviour log-probs of bits, else of selections.
    """

    def losses(
        distributions: Sequence[SelectionDistribution],
        log_probs: Sequence[Tensor],
        rollout: RewardBatch,
        advantage: Tensor,
    ) -> Weighted:
        behaviour = rollout.bit_behaviour if bits else rollout.behaviour
        if correction is not None and behaviour is not None:
            return correction(log_probs, behaviour, advantage, limit)
        slots = enumerate(log_probs)
        return Weighted([policy_gradient_loss(each, advantage[..., s]) for s, each in slots])

    return losses


class _Objective(nn.Module):
    """Sums over a shard; a module, so that learners can share its backward."""

    def __init__(self, policy: Policy, autocast: torch.dtype | None, losses: Surrogate) -> None:
        super().__init__()
        self.policy = policy
        self._autocast, self._losses = autocast, losses

    def forward(
        self,
        inputs: Sequence[PolicyInputs],
        batch: TensorBatch,
        rollout: RewardBatch,
        advantage: Tensor,
        price: tuple[float, float] | None,
    ) -> tuple[Tensor, Tensor, list[Tensor]]:
        """Sums of the loss [], the entropy [] and, if there are any, the ratios [6]."""
        sums: list[list[Tensor]] = [[] for _ in inputs]
        distributions, log_probs, entropies = [], [], []
        for slot, read in enumerate(inputs):
            with products_in(self._autocast, advantage.device):
                distribution = self.policy(read)
                if price is not None:
                    # Expected, without sampling variance: exact for independent bits, else along
                    # the bits of the mode. K times, as the loss is divided by K as well as by B.
                    chances = distribution.probs.to(rollout.rewards.dtype)
                    costs = [len(rollout.rewards) * cost for cost in price]
                    sums[slot].append(role_cost(chances, read.valid, costs, batch.weights))
                evaluated = distribution.evaluate(rollout.selections[slot])
            distributions.append(distribution)
            log_probs.append(evaluated.log_prob)
            entropies.append(evaluated.entropy.sum())
        weighted = self._losses(distributions, log_probs, rollout, advantage)
        for of_slot, loss in zip(sums, weighted.losses, strict=True):
            of_slot.append(loss.sum())
        total = reduce(operator.add, (loss for of_slot in sums for loss in of_slot))
        ratios = [ratio_sums(weighted)] if weighted.ratio else []
        return total, reduce(operator.add, entropies), ratios


class ScoreFunction:
    """Ascends E[sum_s R_s log p(selection_s)] + entropy_cost * H over the policy's parameters.

    Args:
        baseline: what is subtracted from the rewards.
        losses: whose gradient is followed; by default, of log-probs as drawn by the target policy.
    """

    def __init__(
        self,
        setup: UpdateSetup,
        baseline: Baseline = "none",
        losses: Surrogate | None = None,
    ) -> None:
        self._group, self._entropy_cost = setup.group, setup.learner.entropy_cost
        self._baseline = baseline
        objective = _Objective(setup.policy, setup.autocast, losses or corrected())
        self._objective = setup.group.share(objective)
        self.average = torch.tensor(float("nan"))  # of the rewards by sentence, [S] once known
        self._next_average = self.average
        self._step = GradientStep("policy", setup.policy, setup.learner.policy)

    def gradients(
        self,
        batch: TensorBatch,
        inputs: Sequence[PolicyInputs],
        rollout: RewardBatch | None,
        *,
        number: int,
        price: tuple[float, float] | None = None,
    ) -> Gradients:
        """See `PolicyUpdate`."""
        assert rollout is not None
        with self._group.guard():
            advantage = batch.weighed(self._advantages(rollout).mT).mT  # [K, B, S]
            loss, entropy, ratios = self._objective(inputs, batch, rollout, advantage, price)
            samples, _, sentences = rollout.rewards.shape
            spread = advantage.double()
            sums = torch.stack([
                loss.detach(), entropy.detach(), spread.sum(), spread.square().sum(),
            ])  # fmt: skip
            totals = [self._group.sum(sums), *(sum_and_max(self._group, each) for each in ratios)]
            selections, bits = samples * batch.global_size, sentences * batch.global_size
            cost = self._entropy_cost / bits
            norm = self._step.prepare(number, (loss, 1 / selections), (entropy, -cost))

        def metrics(numbers: list[float]) -> dict[str, float]:
            loss, entropy, first, second, *ratios, norm = numbers
            self._step.clip(loss / selections - cost * entropy, norm)
            mean = first / (selections * sentences)
            variance = max(0.0, second / (selections * sentences) - mean * mean)
            return {
                "policy/loss": loss / selections,
                "policy/gradient_norm": norm,
                "policy/entropy": entropy / bits,
                "policy/advantage_std": variance**0.5,
            } | (_ratio_scalars(*ratios) if ratios else {})

        return Gradients([*totals, norm[None]], metrics)

    def apply(self) -> None:
        """See `PolicyUpdate`."""
        self._step.apply()
        self.average = self._next_average

    def state_dict(self) -> dict[str, Tensor]:
        """See `PolicyUpdate`."""
        optimizer = {f"optimizer/{name}": each for name, each in self._step.state_dict().items()}
        return optimizer | {"average": self.average}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """See `PolicyUpdate`."""
        self._step.load_state_dict(under("optimizer/", state))
        self.average = state.get("average", self.average)

    def _advantages(self, rollout: RewardBatch) -> Tensor:
        rewards = rollout.rewards
        self._next_average = self.average
        if self._baseline == "leave-one-out":
            return advantages.leave_one_out(rewards)
        if self._baseline == "self-critical":
            if rollout.thresholded is None:
                raise ValueError("the self-critical baseline needs the thresholded rewards")
            return advantages.self_critical(rewards, rollout.thresholded)
        if self._baseline == "moving-average":
            sums = torch.cat([
                rewards.sum((0, 1)), rewards.new_tensor([rewards[..., 0].numel()])
            ])  # fmt: skip
            total = self._group.sum(sums)
            start = self.average.to(rewards.device).expand(rewards.shape[-1])
            rewards, self._next_average = advantages.moving_average(
                rewards, start, _MOMENTUM, total[:-1] / total[-1]
            )
        return rewards


def _ratio_scalars(
    count: float, ratio: float, clipped: float, weight: float, square: float, largest: float
) -> dict[str, float]:
    """Of importance ratios r and weights w, from the global batch's sums of [1, r, clipped, w, w^2]
    and the largest r; none if no ratio was computed.
    """
    if count == 0:
        return {}
    return {
        "policy/ratio_mean": ratio / count,
        "policy/ratio_max": largest,
        "policy/ratio_clipped": clipped / count,
        "policy/effective_sample_share": weight * weight / (count * square) if square > 0 else 0.0,
    }


def _capabilities(options: BaselineOptions, *, bits: bool) -> frozenset[str]:
    compared = {"leave-one-out": "multiple_selections", "self-critical": "thresholded"}
    needs = {compared[options.baseline]} if options.baseline in compared else set()
    return frozenset({"log_probs", "lag"} | needs | ({"bits"} if bits else set()))


def _reinforce(setup: UpdateSetup, options: ReinforceOptions) -> ScoreFunction:
    losses = corrected(truncated_sum, options.ratio_max)
    return ScoreFunction(setup, options.baseline, losses)


REINFORCE = Component(
    kind="policy_update",
    name="reinforce",
    help="Log-probs times rewards minus a baseline.",
    build=_reinforce,
    options=ReinforceOptions,
    capabilities=lambda options: _capabilities(options, bits=False),
    source="Williams 1992; Kool, van Hoof and Welling 2019 (leave-one-out)",
)


def _ppo_clip(setup: UpdateSetup, options: PPOClipOptions) -> ScoreFunction:
    losses = corrected(clipped_token, options.ratio_clip, bits=True)
    return ScoreFunction(setup, options.baseline, losses)


PPO_CLIP = Component(
    kind="policy_update",
    name="ppo-clip",
    help="Log-probs times rewards minus a baseline, with clipped ratios of each bit.",
    build=_ppo_clip,
    options=PPOClipOptions,
    capabilities=lambda options: _capabilities(options, bits=True),
    source="Schulman et al., Proximal Policy Optimization Algorithms, 2017",
)
