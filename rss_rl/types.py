"""Records shared by all rooms; numpy only, so that no reader of data needs torch.

Legend: B examples, S sentences per example (1 or 2), N tokens of the longest sentence of a slot,
K selections per example, R = 2 roles (0 = head, 1 = dependent).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

ROLES = 2
HEAD, DEPENDENT = 0, 1
"""Index of the head and of the dependent bits on the role axis of a selection."""

FOLD_BIT = 32
"""Of an id, see `Batch.ids`; the bits below are those of the word."""

LONGEST_WORD = 1000
"""Characters of a word that are cut into its parts; what follows says nothing."""

Window = Literal["text", "sentence"]
"""What a pretrained encoder reads at once for a policy."""


_SHOWN_CLASSES = 20


@dataclass(frozen=True)
class LabelSpec:
    """What is predicted on a prepared dataset.

    classes    one of `names`
    score      a real number in [low, high]
    sentence   the number of the sentence of slot 0 (a passage) that answers slot 1 (a question)
    candidate  the number of the candidate answer among the tokens of slot 0 that fills the blank in
               slot 1
    """

    kind: Literal["classes", "score", "sentence", "candidate"]
    names: tuple[str, ...] = ()
    low: float = 0.0
    high: float = 0.0

    @property
    def chooses(self) -> bool:
        """Whether the label is one of the marks on an example's tokens."""
        return self.kind in ("sentence", "candidate")

    @property
    def described(self) -> str:
        """What is predicted, in a few words."""
        if self.kind == "score":
            return f"a score from {self.low:g} to {self.high:g}"
        if self.chooses:
            return f"a {self.kind} of the passage"
        more = len(self.names) - _SHOWN_CLASSES
        shown = ", ".join(self.names[:_SHOWN_CLASSES])
        return f"one of: {shown}" + (f" and {more} more" if more > 0 else "")

    def shown(self, value: float, words: Sequence[str], marks: Array | None) -> str:
        """A label or prediction of an example as text; words and marks [N] are of slot 0."""
        if self.kind == "score":
            return f"{value:.3g}"
        if self.kind == "classes":
            return self.names[int(value)]
        if self.kind == "sentence":
            return f"sentence {int(value) + 1}"
        assert marks is not None
        return words[int(np.argmax(marks == int(value)))]


@dataclass(frozen=True)
class Batch:
    """Examples as padded arrays, one pair of arrays for each sentence slot.

    rows       int64 [B]      row of each example in its split
    tokens     S x int64 [B, N_s]   token ids; padding is 0
    valid      S x bool [B, N_s]    True = real token
    labels     float32 [B] (score) or int64 [B]
    rationale  S x bool [B, N_s], True = token the label follows from; None where unknown
    marks      int64 [B, N_0], the number of each slot-0 token's sentence or candidate answer, -1
               for none; an example's numbers start at 0 and have no gaps; None where labels are
               not a choice
    questions  int64 [B], the same number for all examples (rival answers) of a question; None
               where no example has a rival
    annotations  int64 [B, N_0], bit k of a token of slot 0 says that annotator k marked it; None
               where annotators are not distinguished
    states     S x float16 or float32 [B, N_s, H], contextual token states of a pretrained encoder;
               None where no policy reads them
    folds      int64 [B], from 1, of texts that label weights were learnt from; None elsewhere
    """

    rows: Array
    tokens: tuple[Array, ...]
    valid: tuple[Array, ...]
    labels: Array
    rationale: tuple[Array, ...] | None = None
    marks: Array | None = None
    questions: Array | None = None
    annotations: Array | None = None
    states: tuple[Array, ...] | None = None
    folds: Array | None = None

    @property
    def ids(self) -> tuple[Array, ...]:
        """`tokens` as a `WordEmbedding` reads them: the fold of their text from FOLD_BIT on."""
        if self.folds is None:
            return self.tokens
        fold = (self.folds << FOLD_BIT)[:, None]
        slots = zip(self.tokens, self.valid, strict=True)
        return tuple(tokens + fold * valid for tokens, valid in slots)

    @property
    def sentences(self) -> int:
        """Sentence slots per example, S."""
        return len(self.tokens)

    def __len__(self) -> int:
        return len(self.rows)

    def repeat(self, times: int) -> Batch:
        """The batch `times` over, sample-major: element k * B + b is example b.

        Without its states, which only policies read: a repeated batch comes with its selections.
        """
        if times == 1:
            return self
        plain = replace(self, states=None)
        return plain._each(lambda array: np.tile(array, (times,) + (1,) * (array.ndim - 1)))

    def take(self, indices: Array) -> Batch:
        """The examples at `indices`, int64 [b], which may repeat."""
        return self._each(lambda array: array[indices])

    def _each(self, change: Callable[[Array], Array]) -> Batch:
        """The batch with every array changed alike."""

        def changed(value: Any) -> Any:
            if isinstance(value, tuple):
                return tuple(map(change, value))
            return None if value is None else change(value)

        return Batch(*(changed(getattr(self, field.name)) for field in fields(self)))


class ExampleSource(Protocol):
    """Examples by row: a split of a prepared dataset, or a stand-in of a test."""

    @property
    def labels(self) -> LabelSpec:
        """What is predicted."""

    @property
    def sentences(self) -> int:
        """Sentence slots per example, 1 or 2."""

    def __len__(self) -> int:
        """Number of examples."""

    def lengths(self) -> Array:
        """int64 [len, S], real tokens of each sentence."""

    def batch(self, rows: Sequence[int] | Array) -> Batch:
        """The examples of `rows`, padded to the longest sentence of each slot."""
