"""Top-k: exactly a share of a sentence's tokens, the k with the highest scores.

Learnt through its gates: forward they are 1 on the k highest of score + Gumbel noise, which is a
draw without replacement in proportion to exp(score), and 0 elsewhere; backward each is
sigmoid((score + noise - t) / temperature) with t half-way between the k-th and the next. There is
no log-prob: that of a set is a sum over k! orders.

Legend: K samples, B sentences, N tokens, R = 1 or 2 roles with modules of their own.
Sources: Vieira 2014 and Kool et al. 2019 (Gumbel-top-k); Bengio et al. 2013 (straight-through).
"""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Tensor, nn

from rss_rl.components import Component
from rss_rl.policies.distributions import Gates
from rss_rl.policies.policy import PolicyInputs, PolicySetup
from rss_rl.policies.rss import SelectorOptions
from rss_rl.types import ROLES


class TopKOptions(SelectorOptions):
    """A budget of tokens."""

    share: float = Field(gt=0, le=1)
    """Share of a sentence's tokens to keep, rounded, at least one."""
    temperature: float = Field(default=1.0, gt=0)
    """Temperature of the gates' gradient."""


class TopKGates(Gates):
    """Gates that are 1 on the k highest of score + Gumbel noise; `mode` is those without noise.

    Args:
        scores: [B, R, N]. valid: bool [B, N]. budget: k of each sentence, int64 [B].
        temperature: of the gates' gradient.
    """

    def __init__(self, scores: Tensor, valid: Tensor, budget: Tensor, temperature: float) -> None:
        self.scores, self._valid = scores, valid
        self._budget, self._temperature = budget, temperature

    def _gates(self, scores: Tensor) -> tuple[Tensor, Tensor]:
        """Whether each of [..., B, R, N] is among the k highest, and its soft form."""
        real = self._valid[:, None].expand(scores.shape)
        if not scores.numel():
            return real, scores
        ranked = scores.masked_fill(~real, -torch.inf)
        ordered, order = torch.sort(ranked.detach(), dim=-1, descending=True, stable=True)
        budget = self._budget[:, None, None]
        rank = order.argsort(-1)
        chosen = (rank < budget) & real
        last = ordered.gather(-1, (budget - 1).clamp_min(0).expand(*scores.shape[:-1], 1))
        width = scores.shape[-1] - 1
        after = ordered.gather(-1, budget.clamp_max(width).expand(*scores.shape[:-1], 1))
        # If all are kept there is no next one, even if padding is at its position.
        followed = (budget <= width) & after.isfinite()
        line = torch.where(followed, (last + after) / 2, last - 1)
        line = torch.where(line.isfinite(), line, 0.0)
        soft = torch.sigmoid((scores - line) / self._temperature) * real
        return chosen, soft

    def rsample(self, uniforms: Tensor) -> Tensor:
        """See `SelectionDistribution`."""
        noise = -torch.log(-torch.log(uniforms[:, :, : self.scores.shape[1]]))
        chosen, soft = self._gates(self.scores + noise)
        return (chosen.to(soft.dtype) + (soft - soft.detach())).expand(-1, -1, ROLES, -1)

    @property
    def probs(self) -> Tensor:
        """The soft form without noise, in (0, 1): over one half above the threshold t."""
        return self._gates(self.scores)[1].expand(-1, ROLES, -1)

    @property
    def mode(self) -> Tensor:
        """The k tokens with the highest scores."""
        return self._gates(self.scores)[0].expand(-1, ROLES, -1)


class TopKPolicy(nn.Module):
    """k heads and k dependents of each sentence; the same k tokens where both share a module."""

    def __init__(self, setup: PolicySetup, options: TopKOptions) -> None:
        super().__init__()
        self._share, self._temperature = options.share, options.temperature
        self.modules_by_role = options.modules(setup)
        self.bits_per_token = options.roles

    def budget(self, valid: Tensor) -> Tensor:
        """k of each sentence, int64 [B]."""
        lengths = valid.sum(-1)
        # In float64: a share of 0.3 of 10 tokens must not depend on how float32 rounds.
        wanted = torch.floor(lengths.double() * self._share + 0.5).long()
        return torch.minimum(wanted.clamp_min(1), lengths)

    def forward(self, inputs: PolicyInputs) -> TopKGates:
        """See `rss_rl.policies.policy`."""
        valid = inputs.valid
        scores = self.modules_by_role(inputs.features, valid)  # [B, R, N]
        return TopKGates(scores, valid, self.budget(valid), self._temperature)


TOP_K = Component(
    kind="policy",
    name="top-k",
    help="Exactly a share of a sentence's tokens, those with the highest scores.",
    build=TopKPolicy,
    options=TopKOptions,
    capabilities=frozenset({"learns", "gates", "budget"}),
    source="Vieira 2014; Kool, van Hoof and Welling, ICML 2019 (Gumbel-top-k)",
)
