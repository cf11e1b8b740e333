"""Selection and probabilities of a policy together, with what they share computed once."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import NamedTuple

from torch import Tensor

from rss_rl.policies.protocol import RelaxedPolicy, StochasticPolicy
from rss_rl.types import Array

_DECIMALS = 5
_Memory = list[tuple[object, Sequence[Tensor], Tensor]]
_memory: ContextVar[_Memory | None] = ContextVar("decide", default=None)


class Decided(NamedTuple):
    """selection bool [B, 2, N], as of `threshold`; probabilities [B, 2, N]."""

    selection: Tensor
    probabilities: Tensor


def decide(policy: StochasticPolicy | RelaxedPolicy, embedded: Tensor, valid: Tensor) -> Decided:
    """Results of `threshold` and `probabilities` of any policy; arguments as theirs."""
    token = _memory.set([])
    try:
        return Decided(policy.threshold(embedded, valid), policy.probabilities(embedded, valid))
    finally:
        _memory.reset(token)


def word_scores(probabilities: Tensor) -> Array:
    """The greater of each word's probabilities [B, 2, N] as head and as dependent, float64 [B, N].

    A policy without context scores repeated words equally: rounding keeps float noise from ordering
    them.
    """
    return probabilities.amax(1).double().cpu().numpy().round(_DECIMALS)


def once(owner: object, compute: Callable[..., Tensor], *given: Tensor) -> Tensor:
    """`compute(*given)`; within `decide` once for an owner and the same tensors.

    A derived policy may replace single methods, so these are called, and only what they share is
    cached.
    """
    memory = _memory.get()
    if memory is None:
        return compute(*given)
    for known, tensors, value in memory:
        same = len(tensors) == len(given) and all(map(operator.is_, tensors, given))
        if known is owner and same:
            return value
    value = compute(*given)
    memory.append((owner, given, value))
    return value
