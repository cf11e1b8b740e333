"""Random selections that the classifier learns from, whose share is drawn as well.

    share ~ U(0, 1) for each sentence and role,  bit_i = [u_i < share],  u_i ~ U(0, 1)

so that the number of tokens kept is uniform, too: the classifier meets parts of every size. Its
likelihood of a part, which is the reward of a selection, means little where it has seen only whole
texts.

Legend: B examples, S sentences, N_s tokens of slot s, R = 1 or 2 bits that are drawn for a token.
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
    """selections S x bool [B, 2, N_s]; replaced bool [B], the examples that shall have them."""

    selections: tuple[Array, ...]
    replaced: Array


def random_selections(
    seed: int, update: int, batch: Batch, bits: int, share: float
) -> RandomSelections:
    """Selections of an update; functions of its number and of each row alone.

    Args:
        seed: of the run. update: its number.
        bits: R, drawn for a token; 1 = one decides both roles.
        share: of the examples, those that shall have a random selection.
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
    """Random selections where they are to replace the sampled ones, S x [B, 2, N_s].

    Args:
        sampled: S x [B, 2, N_s], bool, or gates of a float dtype; None where every example has a
            random selection.
    """
    random = [torch.from_numpy(selection).to(device) for selection in drawn.selections]
    if sampled is None:
        return random
    replaced = torch.from_numpy(drawn.replaced).to(device)[:, None, None]
    return [
        torch.where(replaced, bits.to(own.dtype), own)
        for bits, own in zip(random, sampled, strict=True)
    ]
