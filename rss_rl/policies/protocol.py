"""What a selection policy must offer to be trained by a score-function estimator.

Legend: K samples, B sentences, N tokens, E embedding size; role 0 = head, 1 = dependent.
"""

from __future__ import annotations

__all__ = ["Evaluated", "Sampled", "StochasticPolicy"]

from typing import NamedTuple, Protocol

from torch import Tensor


class Sampled(NamedTuple):
    """selection bool [K, B, 2, N], False on padding; log_prob [K, B, 2, N] of its bits.

    The log-prob is 0 on padding, and its sum over role and token is that of the selection. A policy
    that draws bits in sequence gives that of each bit under the bits before it; one that draws a
    bit for both roles gives it to the head.
    """

    selection: Tensor
    log_prob: Tensor


class Evaluated(NamedTuple):
    """log_prob [K, B, 2, N] of given selections; entropy [B], mean over the bits, in nats.

    Where bits are drawn in sequence the entropy is that of each bit under the bits before it,
    averaged over the given selections; its gradient leaves out how those came to be drawn.
    """

    log_prob: Tensor
    entropy: Tensor


class StochasticPolicy(Protocol):
    """A distribution over selections of a sentence. Also a torch module when it has parameters.

    The embedded tokens arrive detached: a policy never changes the classifier's embeddings. All
    randomness comes in through `uniforms`, so equal arguments give equal selections.
    """

    def sample(self, embedded: Tensor, valid: Tensor, uniforms: Tensor) -> Sampled:
        """K selections of each sentence; embedded [B, N, E], uniforms [K, B, 2, N] in (0, 1)."""

    def evaluate(self, embedded: Tensor, valid: Tensor, selection: Tensor) -> Evaluated:
        """Log-prob of the bits of `selection` [K, B, 2, N] and entropy, both differentiable."""

    def probabilities(self, embedded: Tensor, valid: Tensor) -> Tensor:
        """Probability of selection of each token and role, [B, 2, N]; 0 on padding.

        Where bits are drawn in sequence, that after the thresholded bits before it.
        """

    def threshold(self, embedded: Tensor, valid: Tensor) -> Tensor:
        """The deterministic selection used at test time, bool [B, 2, N]."""
