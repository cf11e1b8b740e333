"""What is published to samplers: snapshots, and the deltas that they consist of; without torch.

Legend: see `rss_rl.rollouts.snapshot`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

import numpy as np

from rss_rl.types import Array

if TYPE_CHECKING:
    import torch

CLASSIFIER, WORDS, POLICY = "classifier", "words", "policy"
PARTS = (CLASSIFIER, WORDS, POLICY)
"""The classifier without its trainable word vectors, these word vectors, and the policy."""


class Delta(NamedTuple):
    """The state of a part, or of some rows of the word vectors.

    part     one of `PARTS`
    weights  float32 [P], see `Joined`, a tensor within one process; [R * E] if there are rows
    buffers  uint8, the bytes of the persistent buffers, concatenated
    rows     int64 [R], ascending, of the word vectors; None = the whole part
    leading  float32, as `weights`: the weights that these word vectors average; None = no average
    clock    float64 [1 + R], of the average and of its rows; None = no average
    """

    part: str
    weights: Array | torch.Tensor
    buffers: Array
    rows: Array | None = None
    leading: Array | None = None
    clock: Array | None = None

    @property
    def whole(self) -> bool:
        """Whether it is the whole part, independent of earlier deltas."""
        return self.rows is None

    @property
    def bytes(self) -> int:
        """Bytes that a sampler fetches."""
        arrays = (self.weights, self.buffers, self.rows, self.leading, self.clock)
        return sum(int(array.nbytes) for array in arrays if array is not None)

    def copied(self) -> Delta:
        """The same delta, with weights that no longer change with the learner's."""
        if not self.whole:
            return self
        own = self.weights
        return self._replace(weights=own.copy() if isinstance(own, np.ndarray) else own.clone())


class StoredDelta(NamedTuple):
    """A delta in Ray's object store.

    reference  a Ray reference to one of `bundles`
    place      of the delta in it
    """

    part: str
    whole: bool
    bytes: int
    reference: Any
    place: int


_D = TypeVar("_D", Delta, StoredDelta)


@dataclass(frozen=True)
class _Versioned(Generic[_D]):
    version: int
    deltas: tuple[_D, ...]
    charged: tuple[float, float] | None = None

    @property
    def bytes(self) -> int:
        """Bytes that a sampler with the previous snapshot fetches."""
        return sum(delta.bytes for delta in self.deltas)


class Snapshot(_Versioned[Delta]):
    """The changes since the previous snapshot, or the whole model, under one version.

    `charged` is lambda of heads and of dependents as it stands, where a share is asked for.

    Its weights may lie where the learner's parameters do, and change with them: a snapshot is sent
    or loaded before the next update, or `copied`.
    """

    def copied(self) -> Snapshot:
        """The same snapshot, with weights that no longer change with the learner's."""
        deltas = tuple(delta.copied() for delta in self.deltas)
        return Snapshot(self.version, deltas, self.charged)


class StoredSnapshot(_Versioned[StoredDelta]):
    """A snapshot whose deltas are in Ray's object store, put there by a learner."""


def bundles(deltas: Sequence[Delta]) -> tuple[tuple[Delta, ...], tuple[Delta, ...]]:
    """What is stored as one object each: the modules, and the word vectors.

    Each object costs a sampler some 0.5 ms. Rows of word vectors are stored apart, as they are
    needed for longer.
    """
    words = tuple(delta for delta in deltas if delta.part == WORDS)
    return tuple(delta for delta in deltas if delta.part != WORDS), words
