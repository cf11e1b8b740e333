"""Top-k: the k highest-scoring tokens of a sentence, exactly, or a share of its tokens.

Learnt through its gates: forward they are 1 on the k highest of score + Gumbel noise, which is a
draw without replacement in proportion to exp(score), and 0 elsewhere; backward each is
sigmoid((score + noise - t) / temperature) with t half-way between the k-th and the next. A log-prob
is not offered: that of a set is a sum over k! orders.

Legend: K samples, B sentences, N tokens, R = 1 or 2 roles that have modules of their own.
Sources: Vieira 2014 and Kool et al. 2019 (Gumbel-top-k); Bengio et al. 2013 (straight-through).
"""

from __future__ import annotations

__all__ = ["TopKPolicy"]

import torch
from torch import Tensor, nn

from rss_rl.errors import ConfigError
from rss_rl.policies.plugins import is_number, positive
from rss_rl.policies.protocol import PolicySetup
from rss_rl.policies.rss import RSSModule, RSSModules
from rss_rl.types import ROLES


class TopKPolicy(nn.Module):
    """k heads and k dependents of each sentence; the same k tokens with `policy.shared`.

    Args:
        tokens: k, or all of a shorter sentence. share: of a sentence's tokens instead, rounded, at
            least one token; exactly one of the two is given.
        temperature: of the gates' gradient.

    Raises:
        ConfigError: both, neither, a budget that keeps nothing, a temperature not above 0.
    """

    def __init__(
        self,
        setup: PolicySetup,
        tokens: int | None = None,
        share: float | None = None,
        temperature: float = 1.0,
    ) -> None:
        super().__init__()
        counted = type(tokens) is int and tokens >= 1
        shared_out = share is not None and is_number(share) and 0 < share <= 1
        if (tokens is None) == (share is None) or not (counted or shared_out):
            raise ConfigError(
                f"top-k has the budget tokens={tokens}, share={share}",
                where="policy.options",
                remedy="Give either tokens of at least 1 or a share in (0, 1]",
            )
        config = setup.config
        self._tokens, self._share = tokens, share
        self._temperature = positive("temperature", temperature)
        modules = (
            RSSModule(setup.inputs, config.hidden, setup.activation, 0.5, config.context)
            for _ in range(1 if config.shared else ROLES)
        )
        self.modules_by_role = RSSModules(modules, setup.backend)

    def budget(self, valid: Tensor) -> Tensor:
        """k of each sentence, int64 [B]."""
        lengths = valid.sum(-1)
        if self._tokens is not None:
            return lengths.clamp_max(self._tokens)
        assert self._share is not None
        # In double: a share of 0.3 of 10 tokens must not depend on how float32 rounds.
        wanted = torch.floor(lengths.double() * self._share + 0.5).long()
        return torch.minimum(wanted.clamp_min(1), lengths)

    def _scores(self, embedded: Tensor, valid: Tensor) -> Tensor:
        return self.modules_by_role(embedded, valid)  # type: ignore[no-any-return]

    def _gates(self, scores: Tensor, valid: Tensor) -> tuple[Tensor, Tensor]:
        """Whether each of [..., B, R, N] is among the k highest, and its soft form."""
        shown = valid[:, None].expand(scores.shape)
        if not scores.numel():
            return shown, scores
        ranked = scores.masked_fill(~shown, -torch.inf)
        ordered, order = torch.sort(ranked.detach(), dim=-1, descending=True, stable=True)
        budget = self.budget(valid)[:, None, None]
        rank = order.argsort(-1)
        chosen = (rank < budget) & shown
        last = ordered.gather(-1, (budget - 1).clamp_min(0).expand(*scores.shape[:-1], 1))
        width = scores.shape[-1] - 1
        after = ordered.gather(-1, budget.clamp_max(width).expand(*scores.shape[:-1], 1))
        # Where all are kept there is no next one, whether or not padding stands in its place.
        followed = (budget <= width) & after.isfinite()
        line = torch.where(followed, (last + after) / 2, last - 1)
        line = torch.where(line.isfinite(), line, 0.0)
        soft = torch.sigmoid((scores - line) / self._temperature) * shown
        return chosen, soft

    def gates(self, embedded: Tensor, valid: Tensor, uniforms: Tensor) -> Tensor:
        """See `RelaxedPolicy`."""
        scores = self._scores(embedded, valid)
        noise = -torch.log(-torch.log(uniforms[:, :, : scores.shape[1]]))
        chosen, soft = self._gates(scores + noise, valid)
        return (chosen.to(soft.dtype) + (soft - soft.detach())).expand(-1, -1, ROLES, -1)

    def probabilities(self, embedded: Tensor, valid: Tensor) -> Tensor:
        """The soft form without noise: how far a token is above or below the line, in (0, 1)."""
        return self._gates(self._scores(embedded, valid), valid)[1].expand(-1, ROLES, -1)

    def threshold(self, embedded: Tensor, valid: Tensor) -> Tensor:
        """The k tokens with the highest scores; see `DeterministicPolicy`."""
        return self._gates(self._scores(embedded, valid), valid)[0].expand(-1, ROLES, -1)
