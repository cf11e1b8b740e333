"""What follows from the logits of independent bits: samples, log-probs, a threshold.

Legend: K samples, B sentences, R = 1 or 2 bits that are drawn for a token, N tokens.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from rss_rl.ops import bernoulli
from rss_rl.policies.protocol import Evaluated, Sampled
from rss_rl.types import HEAD, ROLES


class IndependentBits(nn.Module):
    """Base class of a `FactorisedPolicy`; a derived class defines `logits`."""

    def logits(self, embedded: Tensor, valid: Tensor) -> Tensor:
        """See `FactorisedPolicy`."""
        raise NotImplementedError

    def sample(self, embedded: Tensor, valid: Tensor, uniforms: Tensor) -> Sampled:
        """See `StochasticPolicy`."""
        logits = self.logits(embedded, valid)
        bits = bernoulli.sample(logits, valid, uniforms[:, :, : logits.shape[1]])
        log_prob = bernoulli.log_prob(logits, bits, valid)
        return Sampled(bits.expand(-1, -1, ROLES, -1), bernoulli.both_roles(log_prob))

    def evaluate(self, embedded: Tensor, valid: Tensor, selection: Tensor) -> Evaluated:
        """See `StochasticPolicy`."""
        logits = self.logits(embedded, valid)
        bits = selection[:, :, HEAD : HEAD + logits.shape[1]]
        log_prob = bernoulli.log_prob(logits, bits, valid)
        return Evaluated(bernoulli.both_roles(log_prob), bernoulli.entropy(logits, valid))

    def probabilities(self, embedded: Tensor, valid: Tensor) -> Tensor:
        """See `StochasticPolicy`."""
        chance = torch.sigmoid(self.logits(embedded, valid)) * valid[:, None]
        return chance.expand(-1, ROLES, -1)

    def threshold(self, embedded: Tensor, valid: Tensor) -> Tensor:
        """Tokens selected with probability over one half; see `StochasticPolicy`."""
        return self.probabilities(embedded, valid) > 0.5
