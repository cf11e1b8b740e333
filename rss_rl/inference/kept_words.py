"""Selections set by the user: a share of each text's words, or specific words.

Legend: B examples, S sentences per example, N_s tokens in slot s.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch

from rss_rl.errors import ConfigError
from rss_rl.inference.model import Chosen
from rss_rl.ops.rationale_overlap import top_share
from rss_rl.types import Array

_DECIMALS = 5
"""Scores are rounded before ranking, so that float noise does not order equal words."""


def keep_words(chosen: Chosen, keep: Sequence[Array]) -> Chosen:
    """Keep exactly the given words.

    A selected word keeps its roles; an added one becomes head and dependent, as in `gather_facts`.

    Args:
        keep: S x bool [B, N_s].

    Raises:
        ValueError: `keep` does not have one bit per word.
    """
    changed = []
    for selection, bits in zip(chosen.selections, keep, strict=True):
        if bits.shape != (len(selection), selection.shape[-1]):
            raise ValueError(f"keep {bits.shape} does not match selections {selection.shape}")
        own = selection.any(1, keepdim=True)  # [B, 1, N]
        changed.append((selection | ~own) & torch.from_numpy(bits)[:, None])
    return replace(chosen, selections=changed)


def keep_share(chosen: Chosen, share: float) -> Chosen:
    """Keep `share` of each text's words by score, at least one; roles as in `keep_words`.

    A word's score is the greater of its probabilities as head and as dependent.

    Args:
        share: in [0, 1].

    Raises:
        ConfigError: the run has no policy, so words have no scores.
    """
    if chosen.probabilities is None:
        raise ConfigError(
            "the run has no policy, so words have no scores to choose a share by",
            remedy="Say which words to keep",
        )
    scores = [chances.amax(1).double().numpy().round(_DECIMALS) for chances in chosen.probabilities]
    valid = [np.asarray(mask) for mask in chosen.valid]
    best = [top_share(each, mask, share) for each, mask in zip(scores, valid, strict=True)]
    return keep_words(chosen, best)
