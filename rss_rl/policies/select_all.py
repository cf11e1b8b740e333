"""Every token is selected: for warm-up, and the model without hard attention.

Legend: K samples, B sentences, N tokens.
"""

from __future__ import annotations

import math

from torch import Tensor, nn

from rss_rl.components import Component
from rss_rl.policies.protocol import Evaluated, Sampled


class SelectAllPolicy(nn.Module):
    """Every token is head and dependent."""

    def sample(self, embedded: Tensor, valid: Tensor, uniforms: Tensor) -> Sampled:
        """See `StochasticPolicy`."""
        selection = self.threshold(embedded, valid).expand(uniforms.shape)
        return Sampled(selection, embedded.new_zeros(uniforms.shape))

    def evaluate(self, embedded: Tensor, valid: Tensor, selection: Tensor) -> Evaluated:
        """See `StochasticPolicy`; leaving out a token has probability 0."""
        missing = valid[:, None] & ~selection  # [K, B, 2, N]
        log_prob = embedded.new_zeros(missing.shape).masked_fill(missing, -math.inf)
        return Evaluated(log_prob, embedded.new_zeros(len(valid)))

    def probabilities(self, embedded: Tensor, valid: Tensor) -> Tensor:
        """See `StochasticPolicy`."""
        return self.threshold(embedded, valid).to(embedded.dtype)

    def threshold(self, embedded: Tensor, valid: Tensor) -> Tensor:
        """See `StochasticPolicy`."""
        return valid[:, None].expand(-1, 2, -1)


SELECT_ALL = Component(
    kind="policy",
    name="select-all",
    help="Every token is head and dependent.",
    build=lambda setup, options: SelectAllPolicy(),
    capabilities=frozenset({"log_probs"}),
)
