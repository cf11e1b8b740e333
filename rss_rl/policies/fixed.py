"""Policies that learn nothing: every token, and random tokens.

Legend: B sentences, N tokens.
"""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Tensor

from rss_rl.components import Component, Options
from rss_rl.ops.bernoulli import log_odds
from rss_rl.policies.adapters import CertainSelection
from rss_rl.policies.independent_bits import IndependentBits
from rss_rl.policies.protocol import PolicySetup
from rss_rl.types import ROLES


class BernoulliPolicy(IndependentBits):
    """Each token in each role with the same fixed probability, a lower bound for other policies.

    Its threshold keeps all tokens or none.
    """

    def __init__(self, setup: PolicySetup, options: BernoulliOptions) -> None:
        super().__init__()
        self._logit = log_odds(options.probability)

    def logits(self, embedded: Tensor, valid: Tensor) -> Tensor:
        """See `FactorisedPolicy`."""
        shape = (valid.shape[0], ROLES, valid.shape[1])
        return torch.full(shape, self._logit, device=embedded.device)


class BernoulliOptions(Options):
    """Options of random selection."""

    probability: float = Field(
        default=0.5, gt=0, lt=1, description="Probability of keeping a token, in each role."
    )


BERNOULLI = Component(
    kind="policy",
    name="bernoulli",
    help="Random selection: each token in each role with the same fixed probability.",
    build=BernoulliPolicy,
    options=BernoulliOptions,
    capabilities=frozenset({"log_probs", "logits", "random"}),
)


class SelectAllPolicy(CertainSelection):
    """Every token is head and dependent."""

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
