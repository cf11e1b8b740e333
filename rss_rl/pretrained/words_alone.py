"""The state of each word read alone, by a frozen transformer: static vectors of a vocabulary.

Legend: V words, H hidden size.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from rss_rl.pretrained.folder import open_pretrained
from rss_rl.pretrained.reader import WordReader
from rss_rl.types import Array

_AT_ONCE = 1 << 12


def words_alone(
    name: str, words: tuple[str, ...], progress: Callable[[int], None] = lambda done: None
) -> Array:
    """The mean of a word's pieces in the last layer, of a text of this word alone.

    Args:
        name: of the transformer's folder, or on the Hugging Face hub.
        words: of a vocabulary; the first two, `<pad>` and `<unk>`, stand for no text.
        progress: called with the number of words done.

    Returns:
        float32 [V, H].

    Raises:
        ConfigError: there is no such transformer, or it cannot be used.
    """
    pretrained = open_pretrained(name)
    reader = WordReader(pretrained, pretrained.encoder().requires_grad_(False), words).eval()
    vectors = np.zeros((len(words), reader.size), np.float32)
    for start in range(0, len(words), _AT_ONCE):
        ids = torch.arange(start, min(start + _AT_ONCE, len(words)))
        with torch.no_grad():
            states = reader.word_states(ids, torch.arange(len(ids)), len(ids))
        vectors[start : start + len(ids)] = states.numpy()
        progress(start + len(ids))
    return vectors


def pretrained_source(name: str) -> tuple[str, str]:
    """The folder of a transformer, and the SHA-256 of what determines its output.

    Raises:
        ConfigError: there is no such transformer, or it cannot be used.
    """
    pretrained = open_pretrained(name)
    return str(pretrained.folder), pretrained.digest
