"""Policies without parameters: everything, or each token with one chance.

Legend: K samples, B sentences, N tokens.
"""

from __future__ import annotations

__all__ = ["BernoulliPolicy", "SelectAllPolicy"]

import math

import torch
from torch import Tensor, nn

from rss_rl.ops import bernoulli
from rss_rl.policies.protocol import Evaluated, Sampled


class SelectAllPolicy(nn.Module):
    """Every token is head and dependent: warm-up, and the model without hard attention."""

    def sample(self, embedded: Tensor, valid: Tensor, uniforms: Tensor) -> Sampled:
        """See `StochasticPolicy`."""
        selection = self.threshold(embedded, valid).expand(uniforms.shape)
        return Sampled(selection, embedded.new_zeros(uniforms.shape))

    def evaluate(self, embedded: Tensor, valid: Tensor, selection: Tensor) -> Evaluated:
        """See `StochasticPolicy`; a bit that is missing is impossible."""
        missing = valid[:, None] & ~selection  # [K, B, 2, N]
        log_prob = embedded.new_zeros(missing.shape).masked_fill(missing, -math.inf)
        return Evaluated(log_prob, embedded.new_zeros(len(valid)))

    def probabilities(self, embedded: Tensor, valid: Tensor) -> Tensor:
        """See `StochasticPolicy`."""
        return self.threshold(embedded, valid).to(embedded.dtype)

    def threshold(self, embedded: Tensor, valid: Tensor) -> Tensor:
        """See `StochasticPolicy`."""
        return valid[:, None].expand(-1, 2, -1)


class BernoulliPolicy(nn.Module):
    """Each token in each role with the same fixed probability: the random floor."""

    def __init__(self, probability: float) -> None:
        super().__init__()
        self._logit = math.log(probability / (1 - probability))

    def _logits(self, embedded: Tensor, valid: Tensor) -> Tensor:
        return torch.full((valid.shape[0], 2, valid.shape[1]), self._logit, device=embedded.device)

    def sample(self, embedded: Tensor, valid: Tensor, uniforms: Tensor) -> Sampled:
        """See `StochasticPolicy`."""
        logits = self._logits(embedded, valid)
        selection = bernoulli.sample(logits, valid, uniforms)
        return Sampled(selection, bernoulli.log_prob(logits, selection, valid))

    def evaluate(self, embedded: Tensor, valid: Tensor, selection: Tensor) -> Evaluated:
        """See `StochasticPolicy`."""
        logits = self._logits(embedded, valid)
        return Evaluated(
            bernoulli.log_prob(logits, selection, valid), bernoulli.entropy(logits, valid)
        )

    def probabilities(self, embedded: Tensor, valid: Tensor) -> Tensor:
        """See `StochasticPolicy`."""
        return torch.sigmoid(self._logits(embedded, valid)) * valid[:, None]

    def threshold(self, embedded: Tensor, valid: Tensor) -> Tensor:
        """See `StochasticPolicy`; all or nothing, as one chance holds for every token."""
        return self.probabilities(embedded, valid) > 0.5
