"""Word vectors from a pretrained encoder that reads each word alone: `encoder:FOLDER_OR_NAME`.

No word is without one, and they cost one reading of the vocabulary. The principal components with
the largest variance are kept.

Legend: V words of the vocabulary, H hidden size of the encoder, e = min(WIDTH, H, V) components.
Source: the idea of model2vec (Minish Lab, 2024), with whole words in place of pieces.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from rss_rl.data.vocabulary import SPECIAL_WORDS, Vocabulary
from rss_rl.types import Array

PREFIX = "encoder:"
WIDTH = 256
"""Principal components that are kept, at most."""
_SPREAD = 1 / 3
"""Standard deviation of the vectors, near that of GloVe's."""


def is_encoder(path: Path) -> bool:
    """Whether a file of vectors is named as `encoder:...`."""
    return str(path).startswith(PREFIX)


def find_encoder(path: Path) -> tuple[Path, str]:
    """The folder of `encoder:FOLDER_OR_NAME`, and the SHA-256 of what determines its output.

    Raises:
        ConfigError: there is no such transformer, or it cannot be used.
    """
    from rss_rl.pretrained.words_alone import pretrained_source

    folder, digest = pretrained_source(_name(path))
    return Path(folder), digest


def encoder_vectors(
    path: Path, vocabulary: Vocabulary, progress: Callable[[int], None]
) -> tuple[Array, Array, int]:
    """Vectors float32 [V, e], which words have one bool [V], and how many these are.

    Raises:
        ConfigError: see `find_encoder`.
    """
    from rss_rl.pretrained.words_alone import words_alone

    states = words_alone(_name(path), vocabulary.words, progress)
    special = len(SPECIAL_WORDS)
    found = np.arange(len(vocabulary)) >= special
    read = principal_components(states[special:], WIDTH)
    vectors = np.zeros((len(vocabulary), read.shape[1]), np.float32)
    vectors[special:] = read * (_SPREAD / max(float(read.std()), 1e-12))
    return vectors, found, int(found.sum())


def principal_components(rows: Array, width: int) -> Array:
    """Rows [V, H] in the basis of their covariance's leading eigenvectors, [V, min(width, H, V)].

    The sign of a component is that of its largest entry in the basis, so that it is the same
    whichever library computes it.
    """
    centred = rows.astype(np.float64) - rows.mean(0, dtype=np.float64)
    _, basis = np.linalg.eigh(centred.T @ centred)  # ascending
    basis = basis[:, ::-1][:, : min(width, *rows.shape)]
    largest = np.abs(basis).argmax(0)
    basis = basis * np.sign(basis[largest, np.arange(basis.shape[1])])
    found: Array = (centred @ basis).astype(np.float32)
    return found


def _name(path: Path) -> str:
    return str(path).removeprefix(PREFIX)
