"""Rewards of each selection with one bit flipped: n + 1 selections in a few calls.

Legend: K selections, B examples, S sentences, N_s tokens of slot s, F flips.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rss_rl.envs.rewards import Reward
from rss_rl.types import ROLES, Array, Batch

_CALL = 4096
"""Maximum selections in one call of the reward model, to bound the memory."""


def flip_rewards(
    reward: Reward, batch: Batch, selections: Sequence[Array], roles: int
) -> tuple[Array, ...]:
    """S x float32 [K, B, 2, N_s]: the slot's reward with this bit flipped, 0 on padding.

    Args:
        selections: S x bool [K, B, 2, N_s].
        roles: 1 = one bit decides both roles, and the second row of the result is 0.
    """
    result = []
    for slot, bits in enumerate(selections):
        earned = np.zeros(bits.shape, np.float32)
        real = np.broadcast_to(batch.valid[slot][None, :, None], bits.shape)
        indices = np.argwhere(real[:, :, :roles])  # [F, 4]
        for start in range(0, len(indices), _CALL):
            sample, example, role, token = indices[start : start + _CALL].T
            chosen = [s[sample, example] for s in selections]  # S x [F, 2, N_s]
            flips = np.arange(len(sample))
            for turned in [role] if roles == ROLES else range(ROLES):
                chosen[slot][flips, turned, token] ^= True
            parts = reward.score(batch.take(example), chosen)
            earned[sample, example, role, token] = parts.by_sentence[:, slot]
        result.append(earned)
    return tuple(result)
