"""Selections set by the user: a share of each text's words, or specific words.

Legend: B examples, S sentences per example, N_s tokens in slot s.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from rss_rl.errors import ConfigError
from rss_rl.inference.model import Chosen
from rss_rl.ops.rationale_overlap import top_share
from rss_rl.policies.distributions import word_scores
from rss_rl.types import Array


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
    """Keep `share` of each text's words by `word_scores`, at least one; roles as in `keep_words`.

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
    pairs = zip(chosen.probabilities, chosen.valid, strict=True)
    best = [top_share(word_scores(chances), valid.numpy(), share) for chances, valid in pairs]
    return keep_words(chosen, best)
