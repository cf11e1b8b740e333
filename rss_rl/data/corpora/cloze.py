"""Cloze reading: which word or entity of a passage fills the blank of a question.

Slot 0 is the passage, whose tokens are marked with the number of their candidate; slot 1 is the
question with PLACEHOLDER in place of the answer. Candidates are numbered in the order in which they
first stand in the passage, and entities are renamed after that number: a name says nothing but
which mentions belong together, and the first entities of all passages share their vectors (spec,
section 6). Examples whose answer is not in the passage are left out and counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rss_rl.data.sources import BadRow, RawExample, ReaderSource, Words
from rss_rl.types import LabelSpec

PLACEHOLDER = "@placeholder"


def cloze_source(
    name: str,
    files: Mapping[str, tuple[Path, ...]],
    reader: Callable[[str, Path], Iterator[RawExample | BadRow]],
) -> ReaderSource:
    """Passages and questions, whose label is one of the candidates of the passage."""
    return ReaderSource(name, 2, LabelSpec("candidate"), files, reader)


@dataclass
class Numbers:
    """Numbers things in the order in which they are first met."""

    found: dict[str, int] = field(default_factory=dict)

    def number(self, name: str) -> int:
        """The number of `name`, a new one where it is met first."""
        return self.found.setdefault(name, len(self.found))


def renamed(
    passage: Sequence[tuple[str, str]], question: Sequence[tuple[str, str]]
) -> tuple[Words, Words, tuple[int, ...], dict[str, int]]:
    """Rename entities `@entity0`, `@entity1` and so on, those of the question alone last.

    Args:
        passage, question: of each token the word and the entity that it is, empty for none.

    Returns:
        The words of both, of each word of the passage the number of its entity or -1, and the
        number of each entity of the passage.
    """
    numbers = Numbers()
    marks = tuple(numbers.number(entity) if entity else -1 for _, entity in passage)
    of_passage = dict(numbers.found)

    def words(tokens: Sequence[tuple[str, str]]) -> Words:
        return Words(
            f"@entity{numbers.number(entity)}" if entity else word for word, entity in tokens
        )

    return words(passage), words(question), marks, of_passage


def no_answer(file: str, row: int, content: str) -> BadRow:
    """The row of an example whose answer is not in its passage."""
    return BadRow(file, row, "the answer is not in the passage", "", content, by_convention=True)
