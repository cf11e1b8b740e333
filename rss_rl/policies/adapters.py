"""Policies that do less than the runtime asks of one, made whole.

Legend: K samples, B sentences, N tokens.
"""

from __future__ import annotations

__all__ = ["CertainPolicy", "GatedPolicy", "PolicyModule", "adapt"]

import math
from typing import cast

from torch import Tensor, nn

from rss_rl.errors import ConfigError
from rss_rl.policies.protocol import (
    DeterministicPolicy,
    Evaluated,
    RelaxedPolicy,
    Sampled,
    StochasticPolicy,
    reads_tokens,
)


class PolicyModule(nn.Module, StochasticPolicy):
    """What a policy is to the runtime; nobody has to inherit from it.

    One made of a `RelaxedPolicy` without log-probs has no `evaluate`: ask `isinstance` with the
    Protocol of a capability before relying on it.
    """


class CertainPolicy(nn.Module):
    """A deterministic policy as a distribution: its selection has probability 1."""

    def __init__(self, inner: DeterministicPolicy) -> None:
        super().__init__()
        self.inner = inner
        self.reads_tokens = reads_tokens(inner)

    def sample(self, embedded: Tensor, valid: Tensor, uniforms: Tensor) -> Sampled:
        """See `StochasticPolicy`."""
        selection = self.inner.threshold(embedded, valid).expand(uniforms.shape)
        return Sampled(selection, uniforms.new_zeros(uniforms.shape))

    def evaluate(self, embedded: Tensor, valid: Tensor, selection: Tensor) -> Evaluated:
        """See `StochasticPolicy`; any other selection is impossible."""
        other = (selection != self.inner.threshold(embedded, valid)) & valid[:, None]
        log_prob = other.float().masked_fill(other, -math.inf)
        return Evaluated(log_prob, log_prob.new_zeros(len(valid)))

    def probabilities(self, embedded: Tensor, valid: Tensor) -> Tensor:
        """See `StochasticPolicy`; 0 or 1."""
        return self.inner.threshold(embedded, valid).float()

    def threshold(self, embedded: Tensor, valid: Tensor) -> Tensor:
        """See `DeterministicPolicy`."""
        return self.inner.threshold(embedded, valid)


class GatedPolicy(nn.Module):
    """A relaxed policy without log-probs: its selections are the gates that are not 0."""

    def __init__(self, inner: RelaxedPolicy) -> None:
        super().__init__()
        self.inner = inner
        self.reads_tokens = reads_tokens(inner)

    def gates(self, embedded: Tensor, valid: Tensor, uniforms: Tensor) -> Tensor:
        """See `RelaxedPolicy`."""
        return self.inner.gates(embedded, valid, uniforms)

    def sample(self, embedded: Tensor, valid: Tensor, uniforms: Tensor) -> Sampled:
        """Selections as of `StochasticPolicy`; their log-prob is not known and given as 0."""
        gates = self.inner.gates(embedded, valid, uniforms)
        return Sampled(gates > 0, gates.new_zeros(gates.shape))

    def probabilities(self, embedded: Tensor, valid: Tensor) -> Tensor:
        """See `RelaxedPolicy`."""
        return self.inner.probabilities(embedded, valid)

    def threshold(self, embedded: Tensor, valid: Tensor) -> Tensor:
        """See `DeterministicPolicy`."""
        return self.inner.threshold(embedded, valid)


def adapt(policy: object, *, where: str = "policy.name") -> PolicyModule:
    """The policy as the runtime uses it; itself where it is stochastic.

    Args:
        where: what is named in an error.

    Raises:
        ConfigError: it is no torch module, or has not one capability.
    """
    kind = type(policy).__name__
    if not isinstance(policy, nn.Module):
        raise ConfigError(
            f"{kind} is no torch module",
            where=where,
            remedy="Derive it from torch.nn.Module, also if it has no parameters",
        )
    if isinstance(policy, StochasticPolicy):
        return cast(PolicyModule, policy)
    if isinstance(policy, RelaxedPolicy):
        return cast(PolicyModule, GatedPolicy(policy))
    if isinstance(policy, DeterministicPolicy):
        return cast(PolicyModule, CertainPolicy(policy))
    raise ConfigError(
        f"{kind} has no method `threshold`, which every policy needs",
        where=where,
        remedy="See rss_rl.policies.protocol; rss_rl.testing.check_policy checks a policy",
    )
