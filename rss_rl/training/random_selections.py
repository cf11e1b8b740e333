"""Random selections of random share, to train the classifier on.

    share ~ U(0, 1) for each sentence and role,  bit_i = [u_i < share],  u_i ~ U(0, 1)

so that the number of kept tokens is uniform, too. A classifier trained only on full texts would
assign meaningless likelihoods, and hence rewards, to selections.

Legend: B examples, S sentences, N_s tokens of slot s, R = 1 or 2 bits drawn for a token.
Source: Jethani, Sudarshan, Aphinyanaphongs and Ranganath, "Have we learned to explain?", AISTATS
2021 (REAL-X and EVAL-X, classifiers of random masks).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from rss_rl.seeding import keyed_uniforms, stream_key
from rss_rl.types import ROLES, Array, Batch


class RandomSelections(NamedTuple):
    """selections S x bool [B, 2, N_s]; replaced bool [B], the examples that use them."""

    selections: tuple[Array, ...]
    replaced: Array


def random_selections(
    seed: int, update: int, batch: Batch, bits: int, share: float
) -> RandomSelections:
    """Selections of an update; they depend only on its number and on each row.

    Args:
        seed: of the run. update: its number.
        bits: R, drawn for a token; 1 = one bit for both roles.
        share: of the examples that use a random selection.
    """
    selections = []
    for slot, valid in enumerate(batch.valid):
        key = stream_key(seed, "random selection", update, slot)
        uniforms = keyed_uniforms(key, batch.rows, 1, bits, valid.shape[1] + 1)[0]
        drawn = uniforms[..., 1:] < uniforms[..., :1]  # [B, R, N_s]
        kept = np.broadcast_to(drawn, (len(batch), ROLES, valid.shape[1])) & valid[:, None]
        selections.append(np.ascontiguousarray(kept))
    chosen = keyed_uniforms(stream_key(seed, "random example", update), batch.rows, 1, 1, 1)
    return RandomSelections(tuple(selections), chosen[0, :, 0, 0] < share)


def mix_selections(
    sampled: Sequence[Tensor] | None, drawn: RandomSelections, device: torch.device
) -> list[Tensor]:
    """The sampled selections, replaced by random ones where those are used, S x [B, 2, N_s].

    Args:
        sampled: S x [B, 2, N_s], bool or float gates; None = all examples use random selections.
    """
    random = [torch.from_numpy(selection).to(device) for selection in drawn.selections]
    if sampled is None:
        return random
    replaced = torch.from_numpy(drawn.replaced).to(device)[:, None, None]
    return [
        torch.where(replaced, bits.to(own.dtype), own)
        for bits, own in zip(random, sampled, strict=True)
    ]
