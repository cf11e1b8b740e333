"""Cloze reading: which word or entity of a passage fills the blank of a question.

Slot 0 is the passage, whose tokens are marked with the number of their candidate; slot 1 is the
question with PLACEHOLDER in place of the answer. Candidates are numbered by their first occurrence
in the passage, and entities are renamed after that number: a name only says which mentions belong
together, and the first entities of all passages share their vectors (spec, section 6). Examples
whose answer is not in the passage are left out and counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rss_rl.data.sources import BadRow, Words
from rss_rl.types import LabelSpec

PLACEHOLDER = "@placeholder"


CANDIDATE = LabelSpec("candidate")


class _Numbers(dict[str, int]):
    """Numbers names in the order in which they are first looked up."""

    def __missing__(self, name: str) -> int:
        number = self[name] = len(self)
        return number


def numbered_words(
    words: Iterable[str], *, all_tokens: bool = False
) -> tuple[tuple[int, ...], dict[str, int]]:
    """The number (or -1) of each word, ignoring case, and the words by number.

    Args:
        all_tokens: number tokens without a letter, too.
    """
    numbers = _Numbers()
    marks = tuple(
        numbers[word.lower()] if all_tokens or any(map(str.isalpha, word)) else -1 for word in words
    )
    return marks, numbers


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
    numbers = _Numbers()
    marks = tuple(numbers[entity] if entity else -1 for _, entity in passage)
    of_passage = dict(numbers)

    def words(tokens: Sequence[tuple[str, str]]) -> Words:
        return Words(f"@entity{numbers[entity]}" if entity else word for word, entity in tokens)

    return words(passage), words(question), marks, of_passage


def no_answer(file: str, row: int, content: str) -> BadRow:
    """The bad row of an example whose answer is not in its passage."""
    return BadRow(file, row, "the answer is not in the passage", "", content, by_convention=True)
