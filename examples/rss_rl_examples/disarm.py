"""DisARM: pairs of antithetic selections, for policies of independent bits.

Source: Dong, Mnih and Tucker, DisARM: an antithetic gradient estimator for binary latent variables,
NeurIPS 2020.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from rss_rl.components import Component
from rss_rl.learners.score_function import ScoreFunction
from rss_rl.learners.updates import RewardBatch
from rss_rl.ops.importance import Weighted
from rss_rl.policies.distributions import IndependentBits


def disarm(
    distributions: Sequence[IndependentBits],
    log_probs: Sequence[Tensor],
    rollout: RewardBatch,
    _: Tensor,
) -> Weighted:
    """For a bit b, its antithetic twin b' and its logit l, the gradient with respect to l is

        (R(b) - R(b')) / 2 * (-1)^b' * [b != b'] * sigmoid(|l|)

    The mean over K selections is one over K / 2 pairs, hence no factor of 1/2 here.
    """
    losses = []
    for slot, bits in enumerate(distributions):
        first, second = rollout.selections[slot][:, :, : bits.logits.shape[1]].chunk(
            2
        )  # [K/2, B, R, N]
        one, other = rollout.rewards[..., slot, None, None].chunk(2)  # [K/2, B, 1, 1]
        sign = (first != second) * (1 - 2 * second.to(one.dtype))
        slope = (one - other) * sign * torch.sigmoid(bits.logits.detach().abs())
        losses.append(-(slope * bits.logits).sum((-1, -2)))
    return Weighted(losses)


DISARM = Component(
    kind="policy_update",
    name="disarm",
    help="Differences of the rewards of antithetic selections.",
    build=lambda setup, options: ScoreFunction(setup, losses=disarm),
    capabilities=frozenset({"log_probs", "multiple_selections", "antithetic"}),
    source="Dong, Mnih and Tucker 2020",
)
