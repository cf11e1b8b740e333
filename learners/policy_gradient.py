"""The policy-gradient learner: updates the selection policy and nothing else.

Legend: K selections an example, B examples of this learner's shard, S sentences, N_s tokens of
slot s, E embedding size.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from rss_rl.config import LearnerConfig, Reads
from rss_rl.errors import ConfigError
from rss_rl.learners.group import ALONE, Group, sum_and_max
from rss_rl.learners.optim import GradientStep
from rss_rl.models.embedding import WordEmbedding
from rss_rl.models.inputs import TensorBatch
from rss_rl.ops import advantages, bernoulli
from rss_rl.ops.estimators import BitRewards
from rss_rl.ops.importance import ratio_sums
from rss_rl.ops.losses import policy_gradient_loss, role_charge
from rss_rl.policies.adapters import PolicyModule
from rss_rl.policies.estimators.protocol import BitEstimator, LogProbEstimator
from rss_rl.policies.inputs import policy_inputs
from rss_rl.policies.protocol import FactorisedPolicy, StochasticPolicy


class RewardBatch(NamedTuple):
    """Selections of a batch and their rewards.

    selections   S x bool [K, B, 2, N_s]
    rewards      [K, B, S], one for each sentence
    thresholded  [B, S], rewards of the thresholded selections (self-critical baseline), or None
    behaviour    S log-probs under the behaviour policy, [K, B, 2, N_s] of the bits where
                 the estimator is `bitwise`, else [K, B] of the selections; None = the policy
                 itself drew them: no ratio is computed
    uniforms     S x [K, B, 2, N_s], those of the draws, for estimators that weigh bits; else None
    flipped      S x [K, B, 2, N_s], see `Rollout.flipped`; None where flips are not scored
    charged      lambda of heads and of dependents that the rewards leave out, or None
    """

    selections: Sequence[Tensor]
    rewards: Tensor
    thresholded: Tensor | None
    behaviour: Sequence[Tensor] | None = None
    uniforms: Sequence[Tensor] | None = None
    flipped: Sequence[Tensor] | None = None
    charged: tuple[float, float] | None = None


class RatioStats(NamedTuple):
    """Importance ratios r of an update, of bits or of examples as the correction weighs them.

    mean, largest      of r before truncation
    clipped            share that truncation or clipping changed
    effective_samples  (sum w)^2 / (n sum w^2) of the weights w, a share in (0, 1]
    """

    mean: float
    largest: float
    clipped: float
    effective_samples: float


class PolicyStats(NamedTuple):
    """Of one update, over the global batch.

    loss           without the entropy cost
    gradient_norm  before clipping
    entropy        mean of a selection bit, in nats
    advantage_std  standard deviation of the advantages
    ratios         None where no ratio was computed
    """

    loss: float
    gradient_norm: float
    entropy: float
    advantage_std: float
    ratios: RatioStats | None


class _Objective(nn.Module):
    """Sums over a shard: loss, entropy, and those of `ratio_sums`."""

    def __init__(
        self,
        policy: PolicyModule,
        autocast: torch.dtype | None,
        estimator: BitEstimator | LogProbEstimator,
    ) -> None:
        super().__init__()
        self.policy = policy
        self._autocast = autocast
        self._estimator = estimator if isinstance(estimator, BitEstimator) else None
        scores = estimator if isinstance(estimator, LogProbEstimator) else None
        self._correction = None if scores is None else scores.correction
        self._limit = 0.0 if scores is None else scores.limit

    def forward(
        self,
        embedded: Sequence[Tensor],
        batch: TensorBatch,
        reward_batch: RewardBatch,
        advantage: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Sums of the loss and the entropy, and those of the ratios, [6]."""
        losses: list[list[Tensor]] = [[] for _ in embedded]
        log_probs: list[Tensor] = []
        entropies = []
        device = advantage.device.type
        for slot, vectors in enumerate(embedded):
            if reward_batch.charged is not None:
                losses[slot].append(
                    self._charge(vectors, batch.valid[slot], reward_batch, reward_batch.charged)
                )
            if self._estimator is not None:
                loss, entropy = self._by_bit(self._estimator, vectors, slot, batch, reward_batch)
                losses[slot].append(loss)
                entropies.append(entropy)
                continue
            with torch.autocast(device, dtype=self._autocast, enabled=self._autocast is not None):
                evaluated = self.policy.evaluate(
                    vectors, batch.valid[slot], reward_batch.selections[slot]
                )
            log_probs.append(evaluated.log_prob)
            entropies.append(evaluated.entropy.sum())
        scored, ratios = self._score(log_probs, reward_batch, advantage)
        for of_slot, loss in zip(losses, scored, strict=False):
            of_slot.append(loss)
        total = torch.stack([loss for of_slot in losses for loss in of_slot]).sum()
        return total, torch.stack(entropies).sum(), ratios

    def _score(
        self, log_probs: Sequence[Tensor], reward_batch: RewardBatch, advantage: Tensor
    ) -> tuple[list[Tensor], Tensor]:
        """The slots' losses, of which a stale one needs all slots' log-probs, and the ratios' sums.

        No slots where an estimator weighs bits.
        """
        ratios = advantage.new_zeros(6, dtype=torch.float64)
        if self._correction is None or reward_batch.behaviour is None or not log_probs:
            by_slot = [
                policy_gradient_loss(log_prob, advantage[..., slot])
                for slot, log_prob in enumerate(log_probs)
            ]
        else:
            weighted = self._correction(log_probs, reward_batch.behaviour, advantage, self._limit)
            by_slot, ratios = weighted.losses, ratio_sums(weighted)
        return [loss.sum() for loss in by_slot], ratios

    def _charge(
        self, vectors: Tensor, valid: Tensor, reward_batch: RewardBatch, costs: tuple[float, float]
    ) -> Tensor:
        """K times what the policy is expected to pay, by its probabilities: without variance.

        Exact for independent bits; of a policy that draws in sequence, along its thresholded bits.
        """
        assert isinstance(self.policy, StochasticPolicy)
        device = reward_batch.rewards.device.type
        with torch.autocast(device, dtype=self._autocast, enabled=self._autocast is not None):
            chances = self.policy.probabilities(vectors, valid)  # [B, 2, N]
        samples = len(reward_batch.rewards)  # the loss is divided by K as well as by B
        return samples * role_charge(chances.to(reward_batch.rewards.dtype), valid, costs).sum()

    def _by_bit(
        self,
        estimator: BitEstimator,
        vectors: Tensor,
        slot: int,
        batch: TensorBatch,
        reward_batch: RewardBatch,
    ) -> tuple[Tensor, Tensor]:
        """-K sum gradient * logit, whose gradient is what the estimator says, and the entropy."""
        assert isinstance(self.policy, FactorisedPolicy)
        assert reward_batch.uniforms is not None
        device, valid = reward_batch.rewards.device.type, batch.valid[slot]
        with torch.autocast(device, dtype=self._autocast, enabled=self._autocast is not None):
            logits = self.policy.logits(vectors, valid)  # [B, R, N]
        roles = logits.shape[1]
        evidence = BitRewards(
            logits.detach(),
            valid,
            reward_batch.uniforms[slot][:, :, :roles],
            reward_batch.selections[slot][:, :, :roles],
            reward_batch.rewards[..., slot],
            None if reward_batch.flipped is None else reward_batch.flipped[slot][:, :, :roles],
        )
        gradient = estimator.gradient(evidence) * valid[:, None]
        samples = len(reward_batch.rewards)  # the loss is divided by K as well as by B
        return -samples * (gradient * logits).sum(), bernoulli.entropy(logits, valid).sum()


class PolicyGradientLearner:
    """Ascends E[sum_s R_s log p(selection_s)] + entropy_cost * H over the policy's parameters.

    A sentence's selection is credited with its own reward: the sparsity cost of the other sentence
    does not depend on it, so leaving that out changes no expectation and lowers the variance. The
    likelihood in it depends on the selections of all sentences, and so does the weight of a stale
    one, see `rss_rl.ops.importance`.

    Args:
        embedding: the classifier's, read without gradient.
        autocast: dtype of matrix products, or None for float32.
        estimator: of log-probs, or one that weighs bits in their place; that has no baseline, and
            its loss is a number of no meaning with the right gradient.
        group: learners that share each batch; after an error in one of them it is of no use.
        reads: what the policy reads, see `policy_inputs`.
    """

    def __init__(
        self,
        policy: PolicyModule,
        embedding: WordEmbedding,
        config: LearnerConfig,
        autocast: torch.dtype | None,
        group: Group = ALONE,
        *,
        estimator: BitEstimator | LogProbEstimator,
        reads: Reads = "sentence",
    ) -> None:
        if not isinstance(policy, StochasticPolicy):
            raise ConfigError(
                f"{type(policy).__name__} gives no log-probs to learn from rewards by",
                where="learner.estimator",
                remedy="Use an estimator that learns through gates, if it has those",
            )
        self._policy, self._embedding, self._reads = policy, embedding, reads
        self._config = config
        self._group = group
        self._estimator = estimator
        self._objective = group.share(_Objective(policy, autocast, estimator))
        self.average = torch.tensor(float("nan"))  # of the rewards of each sentence, [S] once known
        self._next_average = self.average
        self.step = GradientStep("policy", policy, config.policy)

    def update(self, batch: TensorBatch, reward_batch: RewardBatch, *, number: int) -> PolicyStats:
        """`learn` and `apply`."""
        stats = self.learn(batch, reward_batch, number=number)
        self.apply()
        return stats

    def learn(self, batch: TensorBatch, reward_batch: RewardBatch, *, number: int) -> PolicyStats:
        """The gradients of an optimiser step; all learners of the group must make it.

        Args:
            batch, reward_batch: this learner's shard, which may be empty.
            number: of the update in the run, from 0, for the learning rate's decay.

        Raises:
            NonFiniteError: on a non-finite loss or gradient.
            LearnerError: another learner of the group died or hung.
        """
        with self._group.guard():
            advantage = self._advantages(reward_batch)  # [K, B, S]
            with torch.no_grad():
                embedded = policy_inputs(
                    self._policy,
                    self._embedding,
                    batch.tokens,
                    batch.valid,
                    self._reads,
                    batch.states,
                )  # S x [B, N_s, E]
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
            if cost:  # else nobody asks for the gradient of the entropy
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

    def apply(self) -> None:
        """Step by what was learnt; until then neither a parameter nor the average has changed."""
        self.step.apply()
        self.average = self._next_average

    def _advantages(self, reward_batch: RewardBatch) -> Tensor:
        estimator, rewards = self._estimator, reward_batch.rewards
        self._next_average = self.average
        if isinstance(estimator, BitEstimator):
            return rewards
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
    """What the sums [1, r, clipped, w, w^2] of the global batch say; None where nothing counts."""
    count, ratio, clipped, weight, square = sums
    if count == 0:
        return None
    effective = weight * weight / (count * square) if square > 0 else 0.0
    return RatioStats(ratio / count, largest, clipped / count, effective)
