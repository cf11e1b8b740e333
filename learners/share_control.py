"""Lambda as the multiplier of a constraint: a target share of kept tokens instead of a guess.

The policy ascends E[log p(y | x, selection)] subject to two constraints on what it keeps at the
threshold of one half, as reports show it:

    tokens that are head or dependent = target,    heads = dependents.

The second is there because the first can be met by one role alone, and is: the role that falls
behind brings no reward, so it dies out, and with it all attention between heads and dependents. The
Lagrangian is the paper's reward with a lambda for each role, by the method of multipliers:

    mu     <- mu + rate * margin     where |margin| < 1/2: dual ascent, without winding up
    lambda  = mu + stiffness * (margin + lookahead * slope)      the augmented Lagrangian's part

where slope is the running average of the margin's change in an update: an optimiser with momentum
continues for some updates after lambda has turned, and the policy would swing about the target.

The violation is measured in logits. Let r be the share of heads and of dependents for which the
most likely r of each, taken together, are the target share of the tokens. A role keeps r of the
tokens where its (1 - r)-quantile q of the logits is 0. Its margin is q: how much too high or too
low its logits are. The share itself would not do: it stays at 0 or at 1 while all probabilities are
on one side of one half, and leaps as they cross.

Up to one standard deviation of the role's logits, where that is above 1, the margin is counted in
standard deviations, beyond it in logits. Between words that a sure policy tells apart lie whole
logits: counted in those, one token too many moves lambda by several nats, more than rewards differ.
A policy that has run away with all its words is far from them in both, and needs the push.

The constraints are equalities: where less is kept than asked for, lambda falls below 0 and pays.

The share is asked for on unseen texts. Where what the policy reads was itself learnt from the texts
of training, as label weights are, it keeps more of those than of others. The gap is measured
whenever dev is scored, and training aims so much higher or lower.

Source: Hestenes 1969 and Powell 1969 (multipliers); Stooke, Achiam and Abbeel 2020, "Responsive
safety in reinforcement learning by PID Lagrangian methods" (all three terms).

Legend: B examples, S sentences, N_s tokens of slot s, T real tokens of all of them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from rss_rl.config import RewardConfig
from rss_rl.types import ROLES, Array

_RATE = 0.05
_STIFFNESS = 5.0
_LOOKAHEAD = 4.0
"""In updates: about the memory of Adam's momentum."""
_STEADY = 0.8
"""Of the slope's running average."""
_NEAR = 0.5
_LIMIT = 20.0
"""Of mu, in nats."""
_MEMORY = 0.9
_TOLERANCE = 0.01
_STRICTNESS = 1000.0
"""Of a merit, for each unit of share: more than any metric can make good."""
_GAP_MEMORY = 0.7
_WIDEST_GAP = 0.1
"""Of what is kept in training and on dev; wider ones come of a policy that is still moving."""
_LEAST_SHARE = 0.01
_ROUNDING = 1e-12
"""Of sums of weights."""
_LEAST = 1e-7
"""Probabilities nearer to 0 or 1 than this have the logit of this."""


_KEPT = "selection/thresholded_kept"
_MARGINS = "selection/margin_heads", "selection/margin_dependents"


def share_margin(
    probabilities: Sequence[Array], valid: Sequence[Array], target: float
) -> dict[str, float]:
    """What a policy keeps at the threshold, and how far its roles' logits are from keeping the
    target share, by metric tag.

    Margins are in standard deviations of the logits up to one, in logits beyond it and where those
    vary by less than 1. Examples weigh the same whatever their lengths, as in
    `rss_rl.envs.rewards.kept_shares`.

    Args:
        probabilities: S x float [B, 2, N_s] of selecting each token in each role.
        valid: S x bool [B, N_s].
        target: share of the tokens, in (0, 1).
    """
    sizes = np.sum([v.sum(1) for v in valid], axis=0)  # [B]
    scores, weights = [], []
    for chances, real in zip(probabilities, valid, strict=True):
        inside = np.clip(chances.astype(np.float64), _LEAST, 1 - _LEAST)  # [B, 2, N_s]
        scores.append(np.log(inside / (1 - inside)).transpose(1, 0, 2)[:, real])
        weights.append(np.broadcast_to(1 / np.maximum(sizes, 1)[:, None], real.shape)[real])
    score, weight = np.concatenate(scores, axis=1), np.concatenate(weights)  # [2, T], [T]
    if not len(weight):
        return dict.fromkeys((_KEPT, *_MARGINS), 0.0)
    weight = weight / weight.sum()
    covered = np.stack([_covered(-role, weight) for role in score])  # [2, T]
    # A token is among the most likely r of either role where r is at least the less of the two.
    first = covered.min(0)
    share = first[_covered(first, weight) >= target - _ROUNDING].min()
    margins = {
        tag: _scaled(_lowest(role, of_role, share), _spread(role, weight))
        for tag, role, of_role in zip(_MARGINS, score, covered, strict=True)
    }
    return {_KEPT: float(weight[(score > 0).any(0)].sum())} | margins


def _scaled(margin: float, spread: float) -> float:
    """A margin in logits, counted in spreads up to the first one."""
    if spread <= 1:
        return margin
    beyond = abs(margin) - spread
    return margin / spread if beyond < 0 else math.copysign(1 + beyond, margin)


def _spread(values: Array, weight: Array) -> float:
    """Standard deviation of the values [T]; the weights add up to 1."""
    deviations = values - (values * weight).sum()
    return float(np.sqrt((np.square(deviations) * weight).sum()))


def _covered(values: Array, weight: Array) -> Array:
    """Weight of the tokens up to and with each one, in ascending order of the values, [T]."""
    order = np.argsort(values, kind="stable")
    covered = np.empty_like(weight)
    covered[order] = np.cumsum(weight[order])
    return covered


def _lowest(score: Array, covered: Array, share: float) -> float:
    """Between the lowest score that is among the share of the most likely, and the next."""
    order = np.argsort(covered, kind="stable")
    last = int(np.searchsorted(covered[order], share - _ROUNDING))
    return float(score[order[last : last + 2]].mean())


def merit(value: float, metrics: Mapping[str, float], config: RewardConfig) -> float:
    """What a checkpoint of this value is worth: those that miss the target share come last.

    Args:
        value: of the measure that checkpoints are chosen by, the larger the better.
        metrics: of the same evaluation, with the share `kept`.

    Returns:
        The value itself where the share is within a point of the target, or no target is set.
    """
    if config.target_share is None:
        return value
    return value - _STRICTNESS * max(0.0, abs(metrics["kept"] - config.target_share) - _TOLERANCE)


@dataclass
class _Multiplier:
    """Lambda of one role, `cost`."""

    cost: float
    multiplier: float
    margin: float | None = None
    slope: float = 0.0

    def observe(self, margin: float) -> None:
        """Move by how far the role's logits are off."""
        if abs(margin) < _NEAR:
            self.multiplier = min(_LIMIT, max(-_LIMIT, self.multiplier + _RATE * margin))
        change = 0.0 if self.margin is None else margin - self.margin
        self.slope, self.margin = _STEADY * self.slope + (1 - _STEADY) * change, margin
        self.cost = self.multiplier + _STIFFNESS * (margin + _LOOKAHEAD * self.slope)


class ShareController:
    """Makes the lambda of each role follow what is kept; does nothing where no share is asked for.

    Args:
        config: `sparsity_cost` is where lambda starts.
        updates: in which the policy learns; None where unknown, and there is no schedule.
    """

    def __init__(self, config: RewardConfig, updates: int | None = None) -> None:
        self._last = config.target_share
        self._falling = config.share_schedule * (updates or 0)
        self._updates = 0
        start = config.sparsity_cost
        self._roles = [_Multiplier(start, start) for _ in range(ROLES)]
        self._error: float | None = None
        self._gap = 0.0

    @property
    def target(self) -> float | None:
        """The share to keep in the coming update of the texts of training.

        Scheduled, it falls linearly from 1.
        """
        if self._last is None:
            return None
        share = self._last
        if self._updates < self._falling:
            share = 1 - (1 - self._last) * self._updates / self._falling
        return min(1.0, max(_LEAST_SHARE, share + self._gap))

    @property
    def costs(self) -> tuple[float, float] | None:
        """Lambda of heads and of dependents; None where no share is asked for."""
        heads, dependents = (role.cost for role in self._roles)
        return None if self._last is None else (heads, dependents)

    def observe(self, reached: Mapping[str, float]) -> dict[str, float]:
        """Move both by what the policy of one update keeps, see `share_margin`.

        Returns:
            What that update was charged and by how much it missed, by metric tag.
        """
        if self.target is None or self.costs is None:
            return {}
        (heads, dependents), violation = self.costs, reached[_KEPT] - self.target
        before = violation if self._error is None else self._error
        self._error = _MEMORY * before + (1 - _MEMORY) * violation
        for role, tag in zip(self._roles, _MARGINS, strict=True):
            role.observe(reached[tag])
        self._updates += 1
        return {
            "constraint/multiplier_heads": heads,
            "constraint/multiplier_dependents": dependents,
            "constraint/violation": violation,
            "reward/lambda": (heads + dependents) / 2,
            "reward/lambda_heads": heads,
            "reward/lambda_dependents": dependents,
            "selection/share_error": self._error,
        }

    def scored(self, kept: float) -> None:
        """Aim by what dev keeps at the threshold, beside what the last updates kept in training."""
        if self.target is None or self._error is None:
            return
        gap = self.target + self._error - kept
        if abs(gap) < _WIDEST_GAP:
            self._gap = _GAP_MEMORY * self._gap + (1 - _GAP_MEMORY) * gap

    def state_dict(self) -> dict[str, Any]:
        """JSON-able state; empty where no share is asked for."""
        if self._last is None:
            return {}
        roles = list(map(asdict, self._roles))
        return {"error": self._error, "gap": self._gap, "updates": self._updates, "roles": roles}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore `state_dict`."""
        if self._last is None:
            return
        self._roles = [_Multiplier(**role) for role in state["roles"]]
        self._error, self._gap, self._updates = state["error"], state["gap"], state["updates"]
