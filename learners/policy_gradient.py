"""The policy-gradient learner: updates only the selection policy.

Legend: K selections an example, B examples of this learner's shard, S sentences, N_s tokens of
slot s, E embedding size.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from rss_rl.config import LearnerConfig, Reads
from rss_rl.learners.group import ALONE, Group, sum_and_max
from rss_rl.learners.optim import GradientStep
from rss_rl.models.embedding import WordEmbedding
from rss_rl.models.inputs import TensorBatch
from rss_rl.ops import advantages
from rss_rl.ops.importance import ratio_sums
from rss_rl.ops.losses import policy_gradient_loss, role_charge
from rss_rl.ops.matmul import products_in
from rss_rl.policies.estimators import LogProbEstimator
from rss_rl.policies.inputs import policy_inputs
from rss_rl.policies.protocol import Policy


class RewardBatch(NamedTuple):
    """Selections of a batch and their rewards.

    selections   S x bool [K, B, 2, N_s]
    rewards      [K, B, S], one for each sentence
    thresholded  [B, S], rewards of the thresholded selections (self-critical baseline), or None
    behaviour    S log-probs under the behaviour policy, [K, B, 2, N_s] of the bits if the
                 estimator is `bitwise`, else [K, B] of the selections; None = on-policy: no
                 ratio is computed
    charged      lambda of heads and of dependents that is not part of the rewards, or None
    """

    selections: Sequence[Tensor]
    rewards: Tensor
    thresholded: Tensor | None
    behaviour: Sequence[Tensor] | None = None
    charged: tuple[float, float] | None = None


class RatioStats(NamedTuple):
    """Importance ratios r of an update, of bits or of examples, depending on the correction.

    mean, largest      of r before truncation
    clipped            share changed by truncation or clipping
    effective_samples  (sum w)^2 / (n sum w^2) of the weights w, a share in (0, 1]
    """

    mean: float
    largest: float
    clipped: float
    effective_samples: float


class PolicyStats(NamedTuple):
    """Statistics of one update over the global batch.

    loss           without the entropy cost
    gradient_norm  before clipping
    entropy        mean over the selection bits, in nats
    advantage_std  standard deviation of the advantages
    ratios         None if no ratio was computed
    """

    loss: float
    gradient_norm: float
    entropy: float
    advantage_std: float
    ratios: RatioStats | None


class _Objective(nn.Module):
    """Sums over a shard: loss, entropy, and `ratio_sums`."""

    def __init__(
        self,
        policy: Policy,
        autocast: torch.dtype | None,
        estimator: LogProbEstimator,
    ) -> None:
        super().__init__()
        self.policy = policy
        self._autocast = autocast
        self._correction, self._limit = estimator.correction, estimator.limit

    def forward(
        self,
        embedded: Sequence[Tensor],
        batch: TensorBatch,
        reward_batch: RewardBatch,
        advantage: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Sums of the loss [], the entropy [] and the ratios [6]."""
        losses: list[list[Tensor]] = [[] for _ in embedded]
        log_probs: list[Tensor] = []
        entropies = []
        for slot, vectors in enumerate(embedded):
            valid = batch.valid[slot]
            with products_in(self._autocast, advantage.device):
                found = self.policy(vectors, valid)
                if reward_batch.charged is not None:
                    chances = found.probs.to(reward_batch.rewards.dtype)
                    losses[slot].append(_charge(chances, valid, reward_batch))
                evaluated = found.evaluate(reward_batch.selections[slot])
            log_probs.append(evaluated.log_prob)
            entropies.append(evaluated.entropy.sum())
        scored, ratios = self._score(log_probs, reward_batch, advantage)
        for of_slot, loss in zip(losses, scored, strict=True):
            of_slot.append(loss)
        total = torch.stack([loss for of_slot in losses for loss in of_slot]).sum()
        return total, torch.stack(entropies).sum(), ratios

    def _score(
        self, log_probs: Sequence[Tensor], reward_batch: RewardBatch, advantage: Tensor
    ) -> tuple[list[Tensor], Tensor]:
        """The losses of the slots, and the sums of the ratios [6].

        The importance correction needs all slots' log-probs.
        """
        ratios = advantage.new_zeros(6, dtype=torch.float64)
        if self._correction is None or reward_batch.behaviour is None:
            by_slot = [
                policy_gradient_loss(log_prob, advantage[..., slot])
                for slot, log_prob in enumerate(log_probs)
            ]
        else:
            weighted = self._correction(log_probs, reward_batch.behaviour, advantage, self._limit)
            by_slot, ratios = weighted.losses, ratio_sums(weighted)
        return [loss.sum() for loss in by_slot], ratios


def _charge(chances: Tensor, valid: Tensor, reward_batch: RewardBatch) -> Tensor:
    """K times the expected cost under the policy's probabilities [B, 2, N]: no sampling variance.

    Exact for independent bits; for a sequential policy, along the bits of its mode.
    """
    assert reward_batch.charged is not None
    samples = len(reward_batch.rewards)  # the loss is divided by K as well as by B
    return samples * role_charge(chances, valid, reward_batch.charged).sum()


class PolicyGradientLearner:
    """Ascends E[sum_s R_s log p(selection_s)] + entropy_cost * H over the policy's parameters.

    A sentence's selection is credited with its own reward R_s: the other sentences' sparsity costs
    do not depend on it, so omitting them lowers the variance without bias. The likelihood in R_s
    depends on the selections of all sentences, and so does the importance weight of a stale
    selection, see `rss_rl.ops.importance`.

    Args:
        embedding: the classifier's, read without gradient.
        autocast: dtype of matrix products, or None for float32.
        group: learners that share each batch; unusable after an error in one of them.
        reads: what the policy reads, see `policy_inputs`.
    """

    def __init__(
        self,
        policy: Policy,
        embedding: WordEmbedding,
        config: LearnerConfig,
        autocast: torch.dtype | None,
        group: Group = ALONE,
        *,
        estimator: LogProbEstimator,
        reads: Reads = "sentence",
    ) -> None:
        self._policy, self._embedding, self._reads = policy, embedding, reads
        self._config, self._autocast = config, autocast
        self._group = group
        self._estimator = estimator
        self._objective = group.share(_Objective(policy, autocast, estimator))
        self.average = torch.tensor(float("nan"))  # of the rewards by sentence, [S] once known
        self._next_average = self.average
        self.step = GradientStep("policy", policy, config.policy)

    def update(self, batch: TensorBatch, reward_batch: RewardBatch, *, number: int) -> PolicyStats:
        """`learn` and `apply`."""
        stats = self.learn(batch, reward_batch, number=number)
        self.apply()
        return stats

    def learn(self, batch: TensorBatch, reward_batch: RewardBatch, *, number: int) -> PolicyStats:
        """Compute the gradients of an update; all learners of the group must call it.

        Args:
            batch, reward_batch: this learner's shard, which may be empty.
            number: of the update in the run, from 0, for the learning rate's decay.

        Raises:
            NonFiniteError: on a non-finite loss or gradient.
            LearnerError: another learner of the group died or hung.
        """
        with self._group.guard():
            advantage = self._advantages(reward_batch)  # [K, B, S]
            embedded = self._inputs(batch)
            loss, entropy, ratios = self._objective(embedded, batch, reward_batch, advantage)
            samples, examples, sentences = reward_batch.rewards.shape
            spread = advantage.double()
            sums = torch.stack([
                loss.detach().double(), entropy.detach().double(), spread.sum(),
                spread.square().sum(), spread.new_tensor(float(examples)),
            ])  # fmt: skip
            whole = torch.cat([sums, ratios[:5]])
            totals, largest = sum_and_max(self._group, whole, ratios[5])
            total_loss, total_entropy, first, second, count = totals[:5].tolist()
            selections, bits = samples * count, sentences * count
            cost = self._config.entropy_cost / bits
            objective = loss / selections
            if cost:  # else spare the entropy's backward
                objective = objective - cost * entropy
            norm = self.step.prepare(
                objective, number, total_loss / selections - cost * total_entropy
            )
        mean = first / (selections * sentences)
        variance = max(0.0, second / (selections * sentences) - mean * mean)
        ratio_stats = _ratio_stats(totals[5:].tolist(), float(largest))
        return PolicyStats(
            total_loss / selections, norm, total_entropy / bits, variance**0.5, ratio_stats
        )

    @torch.no_grad()
    def _inputs(self, batch: TensorBatch) -> list[Tensor]:
        """S x [B, N_s, E]."""
        given = batch.tokens, batch.valid, self._reads, batch.states
        with products_in(self._autocast, batch.labels.device):
            return policy_inputs(self._policy, self._embedding, *given)

    def apply(self) -> None:
        """Apply the gradients; until then neither a parameter nor the average has changed."""
        self.step.apply()
        self.average = self._next_average

    def _advantages(self, reward_batch: RewardBatch) -> Tensor:
        estimator, rewards = self._estimator, reward_batch.rewards
        self._next_average = self.average
        if estimator.momentum is not None:
            sums = torch.cat([
                rewards.sum((0, 1)), rewards.new_tensor([rewards[..., 0].numel()])
            ])  # fmt: skip
            total = self._group.sum(sums)
            start = self.average.to(rewards.device).expand(rewards.shape[-1])
            rewards, self._next_average = advantages.moving_average(
                rewards, start, estimator.momentum, total[:-1] / total[-1]
            )
        return estimator.advantages(rewards, reward_batch.thresholded)


def _ratio_stats(sums: Sequence[float], largest: float) -> RatioStats | None:
    """From the global batch's sums of [1, r, clipped, w, w^2]; None if there is no ratio."""
    count, ratio, clipped, weight, square = sums
    if count == 0:
        return None
    effective = weight * weight / (count * square) if square > 0 else 0.0
    return RatioStats(ratio / count, largest, clipped / count, effective)
