"""Attention from head to dependent, averaged over features, for display.

Legend: N tokens of one sentence, D features.
Source: figure 2 of Shen et al., Reinforced Self-Attention Network (IJCAI 2018).
"""

from __future__ import annotations

import torch
from torch import Tensor

from rss_rl.models.directional import DirectionalAttention
from rss_rl.models.encoders.protocol import AttendingEncoder
from rss_rl.models.protocol import Classifier
from rss_rl.ops.attention import attention_weights
from rss_rl.types import DEPENDENT, HEAD

_BLOCK_ELEMENTS = 1 << 22
"""Pair features computed at a time."""


def attention_map(classifier: Classifier, tokens: Tensor, selection: Tensor) -> Tensor | None:
    """Weights P^j_i of head j on dependent i, mean over the features of both directions.

    A head attends to dependents before it in one direction and after it in the other; the weights
    of each side sum to 1. Rows of other tokens than heads and columns of other tokens than
    dependents are 0.

    Args:
        classifier: the reward model. tokens: int64 [N]. selection: bool [2, N].

    Returns:
        float32 [N, N]; None if the encoder has no attention between heads and dependents.
    """
    encoder = getattr(classifier, "encoder", None)
    if not isinstance(encoder, AttendingEncoder):
        return None
    directions, roles = encoder.attending(selection)
    embedded: Tensor = classifier.embedding(tokens[None])  # [1, N, E]
    heads, dependents = (roles[role].nonzero()[:, 0] for role in (HEAD, DEPENDENT))
    found = embedded.new_zeros(len(tokens), len(tokens), dtype=torch.float32)
    for direction, back in zip(directions, (True, False), strict=True):
        ordered = heads[:, None] > dependents if back else heads[:, None] < dependents  # [J, I]
        weights = _weights(direction, direction.project(embedded)[0], heads, dependents, ordered)
        found[heads[:, None], dependents] += weights.float()
    return found


def _weights(
    direction: DirectionalAttention,
    hidden: Tensor,
    heads: Tensor,
    dependents: Tensor,
    allowed: Tensor,
) -> Tensor:
    """[J, I], a block of heads at a time."""
    by_dependent = direction.dependent_score(hidden[dependents])[None]  # [1, I, D]
    by_head = direction.head_score(hidden[heads])[None] + direction.score_bias  # [1, J, D]
    step = max(1, _BLOCK_ELEMENTS // max(1, by_dependent.numel()))
    parts = [
        attention_weights(
            by_head[:, start : start + step],
            by_dependent,
            allowed[None, start : start + step],
            direction.scale,
        )[0].mean(-1)
        for start in range(0, len(heads), step)
    ]
    return torch.cat(parts) if parts else hidden.new_zeros(0, len(dependents))
