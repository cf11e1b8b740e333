"""What a sentence encoder is.

Legend: M sentences, N tokens, R tokens of all sentences, E embedding size.
"""

from __future__ import annotations

__all__ = ["Encoder", "GatedEncoder", "PackedEncoder", "TokenEncoder"]

from typing import Protocol, runtime_checkable

from torch import Tensor

from rss_rl.ops.packing import Packed, Rows


class Encoder(Protocol):
    """A module that makes sentence vectors.

    `reads_unselected` False promises that unselected tokens are irrelevant, so that the caller may
    (and does) remove them before the encoder sees the sentence: it may then treat every valid token
    as selected, and find valid tokens first and padding behind them.
    """

    output_size: int
    reads_unselected: bool

    def __call__(self, embedded: Tensor, valid: Tensor, selection: Tensor) -> Tensor:
        """[M, N, E], bool [M, N], bool [M, 2, N] to [M, output_size].

        A sentence without a token gives zeros.
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
    """An encoder that also takes tokens in rows, without padding, and gives what it else gives.

    training  in which layers drop features
    """

    output_size: int
    reads_unselected: bool
    training: bool

    def packs(self, values: Tensor) -> bool:
        """It can now take what is computed of `values`, by their type and device."""

    @property
    def shares_rows(self) -> bool:
        """`packed` takes K selections of each sentence, and computes less than for each alone."""

    def packed(self, words: Rows, tokens: Packed, roles: Tensor) -> Tensor:
        """Words of R tokens and K selections of these, bool [K, R, 2], to [K M, output_size].

        Where unselected tokens are irrelevant, none that no selection keeps is among the rows. The
        caller has entered `packed_rows(tokens)`.
        """


class TokenEncoder(Protocol):
    """A module that makes a context-aware vector of each token: what a sentence encoder pools."""

    output_size: int

    def __call__(self, embedded: Tensor, valid: Tensor) -> Tensor:
        """[M, N, E] and bool [M, N] (valid tokens first) to [M, N, output_size].

        What stands on padding is of no meaning and reaches no valid token.
        """
