"""Adapters that add the methods that the runtime needs and a policy lacks.

Legend: K samples, B sentences, N tokens.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, cast

from torch import Tensor, nn

from rss_rl.errors import ConfigError
from rss_rl.policies.independent_bits import IndependentBits
from rss_rl.policies.memo import once
from rss_rl.policies.protocol import (
    DeterministicPolicy,
    Evaluated,
    RelaxedPolicy,
    Sampled,
    StochasticPolicy,
    bits_per_token,
    reads_ends,
)

_Rule = Callable[[Tensor, Tensor], Tensor]


class PolicyModule(nn.Module, StochasticPolicy):
    """The type of a policy that the runtime uses; a policy need not inherit from it.

    One adapted from a `RelaxedPolicy` without log-probs has no `evaluate`: check `isinstance` with
    the Protocol of a capability before relying on it.
    """


class _Adapter(nn.Module):
    """Wraps a policy to add methods; its attributes are kept."""

    def __init__(self, inner: Any) -> None:
        super().__init__()
        self.inner = inner
        self.reads_ends = reads_ends(inner)
        self.bits_per_token = bits_per_token(inner)

    def ends(self, tokens: Tensor) -> Tensor:
        """See `ReadsEnds`; of a policy that is one."""
        ends: Tensor = self.inner.ends(tokens)
        return ends


class CertainSelection(nn.Module):
    """Base class of a `StochasticPolicy` whose thresholded selection has probability 1."""

    def sample(self, embedded: Tensor, valid: Tensor, uniforms: Tensor) -> Sampled:
        """See `StochasticPolicy`."""
        selection = self.threshold(embedded, valid).expand(uniforms.shape)
        return Sampled(selection, uniforms.new_zeros(uniforms.shape))

    def evaluate(self, embedded: Tensor, valid: Tensor, selection: Tensor) -> Evaluated:
        """See `StochasticPolicy`; any other selection is impossible."""
        other = (selection != self.threshold(embedded, valid)) & valid[:, None]
        log_prob = other.float().masked_fill(other, -math.inf)
        return Evaluated(log_prob, log_prob.new_zeros(len(valid)))

    def probabilities(self, embedded: Tensor, valid: Tensor) -> Tensor:
        """See `StochasticPolicy`; 0 or 1."""
        return self.threshold(embedded, valid).float()

    def threshold(self, embedded: Tensor, valid: Tensor) -> Tensor:
        """See `DeterministicPolicy`."""
        raise NotImplementedError


class CertainPolicy(_Adapter, CertainSelection):
    """A deterministic policy as a distribution."""

    inner: DeterministicPolicy

    def threshold(self, embedded: Tensor, valid: Tensor) -> Tensor:
        """See `DeterministicPolicy`."""
        return self.inner.threshold(embedded, valid)


class GatedPolicy(_Adapter):
    """A relaxed policy without log-probs: its selections are the gates that are not 0."""

    inner: RelaxedPolicy

    def gates(self, embedded: Tensor, valid: Tensor, uniforms: Tensor) -> Tensor:
        """See `RelaxedPolicy`."""
        return self.inner.gates(embedded, valid, uniforms)

    def sample(self, embedded: Tensor, valid: Tensor, uniforms: Tensor) -> Sampled:
        """Selections as of `StochasticPolicy`; their log-prob is unknown and returned as 0."""
        gates = self.inner.gates(embedded, valid, uniforms)
        return Sampled(gates > 0, gates.new_zeros(gates.shape))

    def probabilities(self, embedded: Tensor, valid: Tensor) -> Tensor:
        """See `RelaxedPolicy`."""
        return self.inner.probabilities(embedded, valid)

    def threshold(self, embedded: Tensor, valid: Tensor) -> Tensor:
        """See `DeterministicPolicy`."""
        return self.inner.threshold(embedded, valid)


class LogitsPolicy(_Adapter, IndependentBits):
    """A policy with logits of independent bits, and all else that follows from them.

    Its own methods are kept, such as a `threshold` by another rule, or `gates`.
    """

    inner: nn.Module

    def logits(self, embedded: Tensor, valid: Tensor) -> Tensor:
        """See `FactorisedPolicy`."""
        return once(self, self._logits, embedded, valid, key=self.training)

    def _logits(self, embedded: Tensor, valid: Tensor) -> Tensor:
        logits: Tensor = self.inner.logits(embedded, valid)  # type: ignore[operator]
        return logits.where(valid[:, None], 0.0)

    def probabilities(self, embedded: Tensor, valid: Tensor) -> Tensor:
        """See `StochasticPolicy`."""
        own: _Rule | None = getattr(self.inner, "probabilities", None)
        return (own or super().probabilities)(embedded, valid)

    def threshold(self, embedded: Tensor, valid: Tensor) -> Tensor:
        """The policy's own rule, or the tokens selected with probability over one half."""
        own: _Rule | None = getattr(self.inner, "threshold", None)
        return (own or super().threshold)(embedded, valid)


class GatedLogitsPolicy(LogitsPolicy):
    """The same for a policy that also has gates."""

    def gates(self, embedded: Tensor, valid: Tensor, uniforms: Tensor) -> Tensor:
        """See `RelaxedPolicy`."""
        gates: Tensor = self.inner.gates(embedded, valid, uniforms)  # type: ignore[operator]
        return gates


_METHODS: Mapping[str, tuple[str, ...]] = {
    "log_probs": ("sample", "evaluate", "probabilities", "threshold"),
    "logits": ("logits",),
    "gates": ("gates", "probabilities", "threshold"),
}
"""What a policy needs for each capability; with `logits` all else follows from them."""


def adapt(
    policy: object, declared: frozenset[str] | None = None, *, where: str = "policy.name"
) -> PolicyModule:
    """The policy as the runtime uses it; unchanged if it is stochastic or already adapted.

    Args:
        declared: capabilities of its component; None = nothing declared, its methods decide.
        where: named in errors.

    Raises:
        ConfigError: it is not a torch module, lacks a method, or is not as declared.
    """
    if not isinstance(policy, nn.Module):
        raise ConfigError(
            f"{type(policy).__name__} is not a torch module",
            where=where,
            remedy="Derive it from torch.nn.Module, even if it has no parameters",
        )
    if isinstance(policy, CertainPolicy | GatedPolicy | LogitsPolicy):
        return cast(PolicyModule, policy)
    _check_methods(policy, declared, where)
    if isinstance(policy, StochasticPolicy):
        return cast(PolicyModule, policy)
    if hasattr(policy, "logits"):
        whole = GatedLogitsPolicy if hasattr(policy, "gates") else LogitsPolicy
        return cast(PolicyModule, whole(policy))
    if isinstance(policy, RelaxedPolicy):
        return cast(PolicyModule, GatedPolicy(policy))
    assert isinstance(policy, DeterministicPolicy)
    return cast(PolicyModule, CertainPolicy(policy))


def _check_methods(policy: nn.Module, declared: frozenset[str] | None, where: str) -> None:
    """Refuse a policy that lacks a method of a capability, or is not as declared.

    It is meant to have a capability whose first method it has, and log-probs if it has `evaluate`.
    """
    kind = type(policy).__name__
    has = {capability for capability, (first, *_) in _METHODS.items() if hasattr(policy, first)}
    if hasattr(policy, "evaluate"):
        has.add("log_probs")
    meant = has | ((declared or frozenset()) & set(_METHODS))
    if "logits" not in meant:
        needed = {"threshold"}.union(*(_METHODS[capability] for capability in meant))
    else:  # what it does not write out follows from them
        needed = {_METHODS[capability][0] for capability in meant - {"log_probs"}}
        needed |= set(_METHODS["log_probs"]) if "log_probs" in has else set()
    missing = sorted(name for name in needed if not hasattr(policy, name))
    if missing:
        raise ConfigError(
            f"{kind} has no method `{missing[0]}`",
            where=where,
            remedy="See rss_rl.policies.protocol; rss_rl.testing.check_policy checks a policy",
        )
    if declared is not None and has - declared:
        undeclared = min(has - declared)
        raise ConfigError(
            f"{kind} has `{_METHODS[undeclared][0]}`, and its component does not declare"
            f" {undeclared}",
            where=where,
            remedy=f'Add "{undeclared}" to its capabilities',
        )
