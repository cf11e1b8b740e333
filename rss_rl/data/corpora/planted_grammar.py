"""How planted sentences are put together: frames, distractor clauses and fillers.

A frame is a line of words in which `*` is a slot for fillers and a name in capitals stands for a
part chosen elsewhere, with or without the mark of the rationale.
"""

from __future__ import annotations

__all__ = [
    "CLAUSE_SIZE",
    "Part",
    "Sentence",
    "complete",
    "distractors_in",
    "pick",
    "surround",
    "unfold",
]

from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeVar

import numpy as np

from rss_rl.data.corpora.planted_words import ADVERBS, FILLERS, NEGATIONS, PEOPLE, VERBS

Part = tuple[str, bool] | None
"""A word with its mark (True = the label follows from it), or a slot for fillers."""

CLAUSE_SIZE = 8
"""Tokens of a distractor clause, at least."""

_BEFORE = (
    "* the WHO did HOW DOES the WHOM and",
    "* HOW did the WHO DOES the WHOM and",
    "* as the WHO did HOW DOES the WHOM",
    "* it was the WHO that did HOW DOES the WHOM and",
)
_AFTER = (
    "while the WHO did HOW DOES the WHOM *",
    "and the WHO did HOW DOES the WHOM *",
    "and HOW did the WHO DOES the WHOM *",
    "and it was the WHO that did HOW DOES the WHOM *",
)

_Choice = TypeVar("_Choice")


class Sentence(NamedTuple):
    """Tokens and, for each, whether the label follows from it."""

    words: tuple[str, ...]
    rationale: tuple[bool, ...]


def pick(draw: np.random.Generator, choices: Sequence[_Choice]) -> _Choice:
    """One of `choices`, all equally likely."""
    return choices[int(draw.integers(len(choices)))]


def unfold(frame: str, chosen: Mapping[str, tuple[str, bool]]) -> list[Part]:
    """The parts of a frame, names in capitals replaced."""
    return [None if w == "*" else chosen.get(w, (w, False)) for w in frame.split()]


def distractors_in(parts: Sequence[Part]) -> int:
    """Words that do not belong to the rationale."""
    return sum(part is not None and not part[1] for part in parts)


def surround(
    draw: np.random.Generator, core: list[Part], distractors: int, *, most: int, negate: bool
) -> list[Part]:
    """Put up to `most` clauses about people around the clause that decides the label.

    They have the words and the build of the deciding clause, so that the place of an animal
    relative to 'did', a verb or 'the' tells nothing.

    Args:
        draw: random numbers.
        core: parts of the deciding clause.
        distractors: words without a mark that the sentence will have; clauses that do not fit
            are left out.
        most: clauses at most; how many is drawn.
        negate: whether the first clause has a negation (a decoy), if there is one. It then
            follows the deciding clause, so that the order tells whose the negation is.
    """
    parts = core
    for clause in range(int(draw.integers(1, most + 1))):
        room = distractors - distractors_in(parts)
        if room < CLAUSE_SIZE:
            break
        negated = negate and clause == 0
        chosen = {
            "WHO": (pick(draw, PEOPLE), False),
            "WHOM": (pick(draw, PEOPLE), False),
            "HOW": (pick(draw, NEGATIONS if negated else ADVERBS), False),
            "DOES": (pick(draw, VERBS), False),
        }
        before = bool(draw.random() < 0.5) and not negated
        framed = [unfold(frame, chosen) for frame in (_BEFORE if before else _AFTER)]
        added = pick(draw, [f for f in framed if distractors_in(f) <= room])
        parts = added + parts if before else parts + added
    return parts


def complete(draw: np.random.Generator, parts: Sequence[Part], distractors: int) -> Sentence:
    """Fill the slots until the sentence has `distractors` words without a mark; end with a stop.

    Raises:
        ValueError: the parts alone have more.
    """
    room = distractors - distractors_in(parts) - 1
    if room < 0:
        raise ValueError(f"{distractors} distractors are fewer than the frame has")
    slots = [i for i, part in enumerate(parts) if part is None]
    phrases: dict[int, list[str]] = {i: [] for i in slots}
    while room:
        phrase = pick(draw, [filler for filler in FILLERS if len(filler) <= room])
        phrases[pick(draw, slots)] += [pick(draw, words) for words in phrase]
        room -= len(phrase)
    tokens: list[tuple[str, bool]] = []
    for i, part in enumerate(parts):
        tokens += [(word, False) for word in phrases[i]] if part is None else [part]
    tokens.append((".", False))
    return Sentence(tuple(word for word, _ in tokens), tuple(mark for _, mark in tokens))
