"""Adapters that add the methods that the runtime needs and a policy lacks.

Legend: K samples, B sentences, N tokens.
"""

from __future__ import annotations

import difflib
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


_MARKS: Mapping[str, tuple[str, ...]] = {
    "log_probs": ("sample", "evaluate"),
    "logits": ("logits",),
    "gates": ("gates",),
}
"""Methods by capability; any one of them shows that a policy is meant to have it."""
_METHODS = ("threshold", "probabilities", "sample", "evaluate", "logits", "gates")
_NEAR = 0.8
"""Similarity from which another name counts as misspelt."""


def adapt(
    policy: object, declared: frozenset[str] | None = None, *, where: str = "policy.name"
) -> PolicyModule:
    """The policy as the runtime uses it; unchanged if it is stochastic or already adapted.

    Args:
        declared: capabilities of its component; None = nothing declared, its methods decide.
        where: named in errors.

    Raises:
        ConfigError: it is not a torch module, has some methods of a capability but not all, or
            does not match what is declared.
    """
    if not isinstance(policy, nn.Module):
        raise ConfigError(
            f"{type(policy).__name__} is not a torch module",
            where=where,
            remedy="Derive it from torch.nn.Module, even if it has no parameters",
        )
    if isinstance(policy, CertainPolicy | GatedPolicy | LogitsPolicy):
        return cast(PolicyModule, policy)
    has = {name for name in _METHODS if callable(getattr(policy, name, None))}
    _check_methods(policy, has, declared, where)
    if declared is not None:
        _check_declared(policy, has, declared, where)
    if isinstance(policy, StochasticPolicy):
        return cast(PolicyModule, policy)
    if "logits" in has:
        whole = GatedLogitsPolicy(policy) if "gates" in has else LogitsPolicy(policy)
        return cast(PolicyModule, whole)
    if isinstance(policy, RelaxedPolicy):
        return cast(PolicyModule, GatedPolicy(policy))
    assert isinstance(policy, DeterministicPolicy)
    return cast(PolicyModule, CertainPolicy(policy))


def _check_methods(
    policy: nn.Module, has: set[str], declared: frozenset[str] | None, where: str
) -> None:
    """Refuse a policy that lacks a method of a capability that it is meant to have."""
    kind = type(policy).__name__
    meant = {mark for mark, names in _MARKS.items() if has & set(names)}
    meant |= (declared or frozenset()) & set(_MARKS)
    needed: dict[str, str] = {}
    if "log_probs" in meant and ("logits" not in has or has & set(_MARKS["log_probs"])):
        needed |= dict.fromkeys(("sample", "evaluate", "probabilities", "threshold"), "log_probs")
    if "logits" in meant:
        needed["logits"] = "logits"
    if "gates" in meant:
        needed["gates"] = "gates"
        if "logits" not in has:
            needed |= {"probabilities": "gates", "threshold": "gates"}
    if not meant and "probabilities" in has:
        raise ConfigError(
            f"{kind} has `probabilities`, but neither `sample` and `evaluate` nor `gates`"
            + _misspelt(policy, {"sample", "evaluate", "gates"}),
            where=where,
            remedy="Add those of one capability of rss_rl.policies.protocol, or drop it",
        )
    if not meant:
        needed["threshold"] = ""
    for name, capability in needed.items():
        if name not in has:
            whose = f"which {capability} needs" if capability else "which every policy needs"
            raise ConfigError(
                f"{kind} has no method `{name}`, {whose}{_misspelt(policy, {name})}",
                where=where,
                remedy="See rss_rl.policies.protocol; rss_rl.testing.check_policy checks a policy",
            )
    if hint := _misspelt(policy, set(_METHODS) - has):
        raise ConfigError(
            f"{kind} has a method that is never called{hint}",
            where=where,
            remedy="Correct its name, or start it with an underscore",
        )


def _misspelt(policy: nn.Module, names: set[str]) -> str:
    """A hint if a method of the policy's own class looks like one of these names."""
    own = [
        name
        for parent in type(policy).__mro__
        if parent not in nn.Module.__mro__
        for name, value in vars(parent).items()
        if callable(value) and name[:1] != "_" and name not in _METHODS
    ]
    for name in sorted(names):
        if near := difflib.get_close_matches(name, own, 1, _NEAR):
            return f" (is `{near[0]}` a misspelt `{name}`?)"
    return ""


def _check_declared(policy: nn.Module, has: set[str], declared: frozenset[str], where: str) -> None:
    """Refuse a policy that does not match what its component declares."""
    kind = type(policy).__name__
    for capability, names in _MARKS.items():
        if has & set(names) and capability not in declared:
            raise ConfigError(
                f"{kind} has `{names[0]}`, and its component does not declare {capability}",
                where=where,
                remedy=f'Add "{capability}" to its capabilities, or start the name with an'
                " underscore",
            )
    if "learns" in declared and not any(True for _ in policy.parameters()):
        raise ConfigError(
            f"{kind} has no parameters, and its component declares that it learns",
            where=where,
            remedy='Drop "learns" from its capabilities',
        )
