"""Selection and probabilities of a policy together."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from rss_rl.policies.memo import remembering
from rss_rl.policies.protocol import RelaxedPolicy, StochasticPolicy
from rss_rl.types import Array

_DECIMALS = 5


class Decided(NamedTuple):
    """selection bool [B, 2, N], as of `threshold`; probabilities [B, 2, N]."""

    selection: Tensor
    probabilities: Tensor


def decide(policy: StochasticPolicy | RelaxedPolicy, embedded: Tensor, valid: Tensor) -> Decided:
    """Results of `threshold` and `probabilities` of any policy; arguments as theirs."""
    with remembering():
        return Decided(policy.threshold(embedded, valid), policy.probabilities(embedded, valid))


def word_scores(probabilities: Tensor) -> Array:
    """The greater of each word's probabilities [B, 2, N] as head and as dependent, float64 [B, N].

    A policy without context scores repeated words equally: rounding keeps float noise from ordering
    them.
    """
    return probabilities.amax(1).double().cpu().numpy().round(_DECIMALS)
