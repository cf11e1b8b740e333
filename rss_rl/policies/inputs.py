"""How much a policy reads of a token, and the numbers that its selections are drawn from.

Legend: B examples, S sentences of an example, N_s tokens of slot s, K selections of an example.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from rss_rl.config import Reads
from rss_rl.errors import ConfigError
from rss_rl.ops.matching import MATCH_SIZE
from rss_rl.seeding import keyed_uniforms, stream_key
from rss_rl.types import ROLES, Array


def input_size(reads: Reads, embedding: int, states: int | None = None) -> int:
    """F, the features that a policy reads of each token.

    Args:
        embedding: size of a word vector.
        states: size of a pretrained encoder's states; None if the policy does not read them.
    """
    if states is not None:
        return embedding + states
    return embedding if reads == "sentence" else 3 * embedding + MATCH_SIZE


def check_reads(reads: Reads, sentences: int) -> None:
    """Refuse a policy that reads whole examples if these have one sentence.

    Raises:
        ConfigError: the task has one sentence per example.
    """
    if reads == "example" and sentences == 1:
        raise ConfigError(
            "the task has one sentence per example, so there is no other to read",
            where="policy.reads",
            remedy="Set policy.reads=sentence",
        )


def selection_uniforms(
    seed: int,
    update: int,
    rows: Array,
    widths: Sequence[int],
    selections: int,
    device: torch.device,
    *,
    antithetic: bool = False,
) -> list[Tensor]:
    """The uniform numbers that selections of an update are drawn from, S x [K, B, 2, N_s].

    They depend only on update and row, so samplers and learners get the same ones.

    Args:
        seed: of the run. rows: int64 [B]. widths: N_s of each slot. selections: K.
        antithetic: the second half of the K are 1 - u, where the first half are u.
    """
    drawn = selections // 2 if antithetic else selections
    uniforms = []
    for slot, width in enumerate(widths):
        key = stream_key(seed, "selection", update, slot)
        numbers = torch.from_numpy(keyed_uniforms(key, rows, drawn, ROLES, width)).to(device)
        uniforms.append(torch.cat([numbers, 1 - numbers]) if antithetic else numbers)
    return uniforms
