"""Records shared by all rooms; numpy only, so that no reader of data needs torch.

Legend: B examples, S sentences an example (1 or 2), N tokens of the longest sentence of a slot,
K selections an example, R = 2 roles (0 = head, 1 = dependent).
"""

from __future__ import annotations

__all__ = ["DEPENDENT", "HEAD", "ROLES", "Array", "Batch", "ExampleSource", "LabelSpec"]

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

ROLES = 2
HEAD, DEPENDENT = 0, 1
"""Index of the head and of the dependent bits on the role axis of a selection."""


@dataclass(frozen=True)
class LabelSpec:
    """What a prepared dataset asks to be predicted.

    kind `classes`: one of `names`; kind `score`: a real number in [low, high].
    """

    kind: Literal["classes", "score"]
    names: tuple[str, ...] = ()
    low: float = 0.0
    high: float = 0.0


@dataclass(frozen=True)
class Batch:
    """Examples as padded arrays, one pair of arrays for each sentence slot.

    rows       int64 [B]      row of each example in its split
    tokens     S x int64 [B, N_s]   token ids; padding is 0
    valid      S x bool [B, N_s]    True = real token
    labels     int64 [B] (classes) or float32 [B] (score)
    rationale  S x bool [B, N_s], True = token the label follows from; None where unknown
    """

    rows: Array
    tokens: tuple[Array, ...]
    valid: tuple[Array, ...]
    labels: Array
    rationale: tuple[Array, ...] | None = None

    @property
    def sentences(self) -> int:
        """Sentence slots an example has, S."""
        return len(self.tokens)

    def __len__(self) -> int:
        return len(self.rows)

    def repeat(self, times: int) -> Batch:
        """The batch `times` over, sample-major: element k * B + b is example b."""
        if times == 1:
            return self

        def tile(array: Array) -> Array:
            return np.tile(array, (times,) + (1,) * (array.ndim - 1))

        return Batch(
            rows=tile(self.rows),
            tokens=tuple(tile(a) for a in self.tokens),
            valid=tuple(tile(a) for a in self.valid),
            labels=tile(self.labels),
            rationale=None if self.rationale is None else tuple(tile(a) for a in self.rationale),
        )


class ExampleSource(Protocol):
    """Anything that hands out examples by row: a split of a prepared dataset, or a test's own."""

    @property
    def labels(self) -> LabelSpec:
        """What is predicted."""

    @property
    def sentences(self) -> int:
        """Sentence slots an example has, 1 or 2."""

    def __len__(self) -> int:
        """Number of examples."""

    def lengths(self) -> Array:
        """int64 [len, S], real tokens of each sentence."""

    def batch(self, rows: Sequence[int] | Array) -> Batch:
        """The examples of `rows`, padded to the longest sentence of each slot."""
