"""The interface of sentence encoders, their setup, and how one is declared.

Legend: M sentences, N tokens, R tokens of all sentences, E embedding size, D hidden.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from torch import Tensor

from rss_rl.components import Component, Kind
from rss_rl.ops.attention import KernelBackend
from rss_rl.ops.packing import Packed, WordRows


@dataclass(frozen=True)
class TrainingLengths:
    """How long the training sentences are, for options computed from it.

    slots       mean and standard deviation of the tokens of a sentence, by sentence slot
    batch_size  examples of an update
    """

    slots: tuple[tuple[float, float], ...]
    batch_size: int


@dataclass(frozen=True)
class EncoderSetup:
    """What an encoder, or its context layer, is built from.

    inputs      E, features that it reads
    hidden      D; vectors have 2 D features where an encoder has two directions or several heads
    activation  relu or elu
    dropout     rate on the input of each layer
    backend     what computes its layers; eager without the capability `kernels`
    lengths     of the training sentences; None if unknown
    words       of the token ids; None if unknown
    """

    inputs: int
    hidden: int
    activation: str = "elu"
    dropout: float = 0.0
    backend: KernelBackend = "eager"
    lengths: TrainingLengths | None = None
    words: Sequence[str] | None = None


@dataclass(frozen=True, kw_only=True)
class EncoderComponent(Component):
    """A sentence encoder as its own file declares it; `build` returns an `Encoder`.

    context  returns the layer that fuses the vectors of a sequence of sentences, for passages; None
             if a passage's sentences exchange nothing
    """

    kind: Kind = "encoder"
    context: Callable[[EncoderSetup, Any], TokenEncoder] | None = None


class Encoder(Protocol):
    """A module that makes sentence vectors.

    `reads_unselected` False promises that unselected tokens are irrelevant, so that the caller
    removes them first: the encoder may then treat every valid token as selected, and padding comes
    last.
    """

    output_size: int
    reads_unselected: bool

    def __call__(self, embedded: Tensor, valid: Tensor, selection: Tensor) -> Tensor:
        """[M, N, E], bool [M, N], bool [M, 2, N] to [M, output_size].

        A sentence without tokens gives zeros.
        """


@runtime_checkable
class GatedEncoder(Protocol):
    """An encoder that also takes gates in place of a selection, differentiably.

    The gate of a dependent multiplies the attention weights on it, that of a head its weight in the
    sentence vector. Gates of 0 and 1 give what that selection gives.
    """

    def gated(self, embedded: Tensor, valid: Tensor, gates: Tensor) -> Tensor:
        """[M, N, E], bool [M, N] (valid tokens first), [M, 2, N] (0 on padding) to [M, output]."""


@runtime_checkable
class PackedEncoder(Protocol):
    """An encoder that also takes packed tokens, with the same results.

    training  whether its layers apply dropout
    """

    output_size: int
    reads_unselected: bool
    training: bool

    @property
    def shares_rows(self) -> bool:
        """Whether `packed` takes K selections of each sentence, and shares computation."""

    def packed(self, words: WordRows, tokens: Packed, roles: Tensor) -> Tensor:
        """Words of R tokens and K selections of these, bool [K, R, 2], to [K M, output_size].

        If unselected tokens are irrelevant, the rows are only those that some selection keeps. The
        caller has entered `packed_rows(tokens)`.
        """


@runtime_checkable
class WordEncoder(Protocol):
    """An encoder that takes ids instead of vectors.

    It and its method `gated` are called with words int64 [M, N] in place of embedded [M, N, E].
    """

    reads_words: bool

    def add_words(self, words: Sequence[str]) -> None:
        """Add words, with the ids after the existing ones."""


@runtime_checkable
class SavedEncoder(Protocol):
    """An encoder that can be written as a pretrained one, for other runs and programs."""

    def save(self, folder: Path) -> None:
        """Write it with what it has learnt, as `open_pretrained` takes it."""


class TokenEncoder(Protocol):
    """A module that makes a context-aware vector of each token, for a sentence encoder to pool."""

    output_size: int

    def __call__(self, embedded: Tensor, valid: Tensor) -> Tensor:
        """[M, N, E] and bool [M, N] (valid tokens first) to [M, N, output_size].

        Vectors on padding are meaningless, and padding reaches no valid token.
        """
