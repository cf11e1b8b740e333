"""The random floor: each token with one chance.

Legend: K samples, B sentences, N tokens.
"""

from __future__ import annotations

import math

import torch
from pydantic import Field
from torch import Tensor, nn

from rss_rl.components import Component, Options
from rss_rl.ops import bernoulli
from rss_rl.policies.protocol import Evaluated, Sampled


class BernoulliPolicy(nn.Module):
    """Each token in each role with the same fixed probability: the random floor."""

    def __init__(self, probability: float) -> None:
        super().__init__()
        self._logit = math.log(probability / (1 - probability))

    def _logits(self, embedded: Tensor, valid: Tensor) -> Tensor:
        return torch.full((valid.shape[0], 2, valid.shape[1]), self._logit, device=embedded.device)

    def sample(self, embedded: Tensor, valid: Tensor, uniforms: Tensor) -> Sampled:
        """See `StochasticPolicy`."""
        logits = self._logits(embedded, valid)
        selection = bernoulli.sample(logits, valid, uniforms)
        return Sampled(selection, bernoulli.log_prob(logits, selection, valid))

    def evaluate(self, embedded: Tensor, valid: Tensor, selection: Tensor) -> Evaluated:
        """See `StochasticPolicy`."""
        logits = self._logits(embedded, valid)
        return Evaluated(
            bernoulli.log_prob(logits, selection, valid), bernoulli.entropy(logits, valid)
        )

    def probabilities(self, embedded: Tensor, valid: Tensor) -> Tensor:
        """See `StochasticPolicy`."""
        return torch.sigmoid(self._logits(embedded, valid)) * valid[:, None]

    def threshold(self, embedded: Tensor, valid: Tensor) -> Tensor:
        """See `StochasticPolicy`; all or nothing, as one chance holds for every token."""
        return self.probabilities(embedded, valid) > 0.5


class BernoulliOptions(Options):
    """Of the random floor."""

    probability: float = Field(
        default=0.5, gt=0, lt=1, description="Of keeping a token, in each role."
    )


BERNOULLI = Component(
    kind="policy",
    name="bernoulli",
    help="Each token in each role with the same fixed probability: the random floor.",
    build=lambda setup, options: BernoulliPolicy(options.probability),
    options=BernoulliOptions,
    capabilities=frozenset({"log_probs", "random"}),
    was={"probability": "policy.initial_probability"},
)
