"""Cloze reading: which word or entity of a passage fills the blank of a question.

Slot 0 is the passage, whose tokens are marked with the number of their candidate; slot 1 is the
question with PLACEHOLDER in place of the answer. Candidates are numbered by their first occurrence
in the passage, and entities are renamed after that number: a name only says which mentions belong
together, and the first entities of all passages share their vectors (spec, section 6). Examples
whose answer is not in the passage are left out and counted.
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
    """A source of passages and questions whose label is a candidate of the passage."""
    return ReaderSource(name, 2, LabelSpec("candidate"), files, reader)


@dataclass
class Numbers:
    """Numbers names in the order of their first occurrence."""

    found: dict[str, int] = field(default_factory=dict)

    def number(self, name: str) -> int:
        """The number of `name`, a new one if it is new."""
        return self.found.setdefault(name, len(self.found))


def renamed(
    passage: Sequence[tuple[str, str]], question: Sequence[tuple[str, str]]
) -> tuple[Words, Words, tuple[int, ...], dict[str, int]]:
    """Rename entities `@entity0`, `@entity1` and so on, those only in the question last.

    Args:
        passage, question: for each token its word and entity, empty for none.

    Returns:
        The words of both, the entity number (or -1) of each word of the passage, and the number of
        each entity of the passage.
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
    """The bad row of an example whose answer is not in its passage."""
    return BadRow(file, row, "the answer is not in the passage", "", content, by_convention=True)
