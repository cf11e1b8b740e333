"""Policies that learn nothing: every token, and random tokens.

Legend: B sentences, N tokens.
"""

from __future__ import annotations

import torch
from pydantic import Field
from torch import nn

from rss_rl.components import Component, Options
from rss_rl.ops.bernoulli import log_odds
from rss_rl.policies.distributions import Certain, IndependentBits
from rss_rl.policies.policy import PolicyInputs, PolicySetup
from rss_rl.types import ROLES


class BernoulliPolicy(nn.Module):
    """Each token in each role with the same fixed probability, a lower bound for other policies.

    Its mode keeps all tokens or none.
    """

    def __init__(self, setup: PolicySetup, options: BernoulliOptions) -> None:
        super().__init__()
        self._logit = log_odds(options.probability)

    def forward(self, inputs: PolicyInputs) -> IndependentBits:
        """See `rss_rl.policies.policy`."""
        valid = inputs.valid
        shape = (valid.shape[0], ROLES, valid.shape[1])
        return IndependentBits(torch.full(shape, self._logit, device=valid.device), valid)


class BernoulliOptions(Options):
    """Options of random selection."""

    probability: float = Field(default=0.5, gt=0, lt=1)
    """Probability of keeping a token, in each role."""


BERNOULLI = Component(
    kind="policy",
    name="bernoulli",
    help="Random selection: each token in each role with the same fixed probability.",
    build=BernoulliPolicy,
    options=BernoulliOptions,
    capabilities=frozenset({"log_probs", "random"}),
)


class SelectAllPolicy(nn.Module):
    """Every token is head and dependent."""

    def forward(self, inputs: PolicyInputs) -> Certain:
        """See `rss_rl.policies.policy`."""
        valid = inputs.valid
        return Certain(valid[:, None].expand(-1, ROLES, -1), valid)


SELECT_ALL = Component(
    kind="policy",
    name="select-all",
    help="Every token is head and dependent.",
    build=lambda setup, options: SelectAllPolicy(),
    capabilities=frozenset({"log_probs"}),
)
