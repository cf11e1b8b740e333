"""The policy-gradient learner: updates the selection policy and nothing else.

Legend: K selections an example, B examples, S sentences, N_s tokens of slot s, E embedding size.
"""

from __future__ import annotations

__all__ = ["PolicyGradientLearner", "PolicyStats", "RewardBatch"]

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from learners.optim import GradientStep
from rss_rl.config import LearnerConfig
from rss_rl.models.embedding import WordEmbedding
from rss_rl.models.inputs import TensorBatch
from rss_rl.ops import advantages
from rss_rl.ops.losses import policy_gradient_loss
from rss_rl.policies.registry import PolicyModule


class RewardBatch(NamedTuple):
    """What the environment paid.

    selections   S x bool [K, B, 2, N_s]
    rewards      [K, B, S], one for each sentence
    thresholded  [B, S], rewards of the thresholded selections (self-critical baseline), or None
    """

    selections: Sequence[Tensor]
    rewards: Tensor
    thresholded: Tensor | None


class PolicyStats(NamedTuple):
    """Of one update: loss, gradient norm, mean bit entropy (nats), spread of the advantages."""

    loss: float
    gradient_norm: float
    entropy: float
    advantage_std: float


class PolicyGradientLearner:
    """Ascends E[sum_s R_s log p(selection_s)] + entropy_cost * H over the policy's parameters.

    A sentence's selection is credited with its own reward: the sparsity cost of the other sentence
    does not depend on it, so leaving that out changes no expectation and lowers the variance.

    Args:
        embedding: the classifier's, read without gradient.
        autocast: dtype of matrix products, or None for float32.
    """

    def __init__(
        self,
        policy: PolicyModule,
        embedding: WordEmbedding,
        config: LearnerConfig,
        autocast: torch.dtype | None,
    ) -> None:
        self._policy = policy
        self._embedding = embedding
        self._config = config
        self._autocast = autocast
        self.average = torch.tensor(float("nan"))  # of the rewards of each sentence, [S] once known
        self.step = GradientStep("policy", policy, config.policy)

    def update(self, batch: TensorBatch, paid: RewardBatch, *, number: int) -> PolicyStats:
        """One optimiser step.

        Args:
            number: of the update in the run, from 0, for the learning rate's decay.

        Raises:
            NonFiniteError: on a non-finite loss or gradient; no parameter has changed then.
        """
        advantage = self._advantages(paid)  # [K, B, S]
        loss = torch.zeros((), device=paid.rewards.device)
        entropy = torch.zeros((), device=paid.rewards.device)
        device = paid.rewards.device.type
        for slot, selection in enumerate(paid.selections):
            with torch.no_grad():
                embedded = self._embedding(batch.tokens[slot])  # [B, N_s, E]
            with torch.autocast(device, dtype=self._autocast, enabled=self._autocast is not None):
                evaluated = self._policy.evaluate(embedded, batch.valid[slot], selection)
            loss = loss + policy_gradient_loss(evaluated.log_prob, advantage[..., slot])
            entropy = entropy + evaluated.entropy.mean() / len(paid.selections)
        norm = self.step(loss - self._config.entropy_cost * entropy, number)
        spread = float(advantage.std(correction=0))
        return PolicyStats(float(loss.detach()), norm, float(entropy.detach()), spread)

    def _advantages(self, paid: RewardBatch) -> Tensor:
        if self._config.baseline == "leave-one-out":
            return advantages.leave_one_out(paid.rewards)
        if self._config.baseline == "self-critical":
            if paid.thresholded is None:
                raise ValueError("the self-critical baseline needs the thresholded rewards")
            return advantages.self_critical(paid.rewards, paid.thresholded)
        if self._config.baseline == "moving-average":
            start = self.average.to(paid.rewards.device).expand(paid.rewards.shape[-1])
            result, self.average = advantages.moving_average(
                paid.rewards, start, self._config.baseline_momentum
            )
            return result
        return paid.rewards
