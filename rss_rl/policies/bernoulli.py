"""The random floor: each token with one chance.

Legend: B sentences, N tokens.
"""

from __future__ import annotations

import math

import torch
from pydantic import Field
from torch import Tensor

from rss_rl.components import Component, Options
from rss_rl.policies.independent_bits import IndependentBits
from rss_rl.policies.protocol import PolicySetup
from rss_rl.types import ROLES


class BernoulliPolicy(IndependentBits):
    """Each token in each role with the same fixed probability: the random floor.

    Its threshold is all or nothing, as one chance holds for every token.
    """

    def __init__(self, setup: PolicySetup, options: BernoulliOptions) -> None:
        super().__init__()
        self._logit = math.log(options.probability / (1 - options.probability))

    def logits(self, embedded: Tensor, valid: Tensor) -> Tensor:
        """See `FactorisedPolicy`."""
        shape = (valid.shape[0], ROLES, valid.shape[1])
        return torch.full(shape, self._logit, device=embedded.device)


class BernoulliOptions(Options):
    """Of the random floor."""

    probability: float = Field(
        default=0.5, gt=0, lt=1, description="Of keeping a token, in each role."
    )


BERNOULLI = Component(
    kind="policy",
    name="bernoulli",
    help="Each token in each role with the same fixed probability: the random floor.",
    build=BernoulliPolicy,
    options=BernoulliOptions,
    capabilities=frozenset({"log_probs", "logits", "random"}),
    was={"probability": "policy.initial_probability"},
)
