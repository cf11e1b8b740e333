"""Generated sentences whose label follows from a few known words: the default task, without files.

In a sentence a mammal meets a bird; the label is the one that prevails. In 'The fox did surely
chase the owl' it is the mammal, and also in 'never did the owl chase the fox'. Rationale: both
animals and the negation of their clause.

They are surrounded by 15 to 60 distractors: fillers, and clauses about people that use the same
words ('the farmers did finally chase the millers'). The set of words is independent of the label,
which depends only on their order and on the clause that a negation belongs to.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np
from pydantic import Field

from rss_rl.components import Options
from rss_rl.data.sources import RawExample, Source, SourceComponent, SourceRequest
from rss_rl.seeding import generator
from rss_rl.types import LabelSpec

# The words. Only animals, their kinds and negations decide labels, and of these only negations also
# occur in distractors (decoys). All other words are distractors, drawn independently of the label.
# Words of a tuple are interchangeable.

KINDS = ("mammal", "bird")

ANIMALS: dict[str, tuple[str, ...]] = {
    "mammal": ("fox", "wolf", "hare", "badger", "otter", "lynx", "bear", "mole"),
    "bird": ("owl", "heron", "falcon", "raven", "swan", "crane", "robin", "eagle"),
}
"""Animals by kind."""

NEGATIONS = ("never", "hardly")
ADVERBS = ("indeed", "finally", "surely", "certainly", "once", "later")
"""A negation or else an adverb is next to 'did', so that only the negation itself tells."""

VERBS = ("beat", "defeat", "outwit", "chase", "tame", "frighten", "surpass", "conquer", "rule")
PEOPLE = ("farmers", "children", "sailors", "travellers", "millers", "shepherds", "painters")
WATCHING = ("watched", "waited", "slept", "listened", "rested", "sang")

_PREPOSITIONS = ("near", "behind", "beside", "above", "below", "beyond", "past", "around")
_ADJECTIVES = ("old", "quiet", "narrow", "wooden", "frozen", "green", "distant", "broken", "dusty")
_PLACES = ("mill", "river", "bridge", "orchard", "chapel", "harbour", "hill", "garden", "tower")
_THINGS = ("wind", "rain", "snow", "fog", "frost", "thunder")
_HAPPENING = ("rose", "faded", "returned", "passed", "settled", "lingered")
_TIMES = ("dawn", "dusk", "noon", "midnight", "sunset", "harvest")
_DAYS = ("morning", "evening", "afternoon", "night", "winter", "summer")

FILLERS: tuple[tuple[tuple[str, ...], ...], ...] = (
    (("yesterday", "meanwhile", "quietly", "again", "slowly", "there", "somehow", "outside"),),
    (("before", "after", "until", "around"), _TIMES),
    (("last", "that", "every", "one"), _DAYS),
    (_PREPOSITIONS, ("the",), _PLACES),
    (_PREPOSITIONS, ("the",), _ADJECTIVES, _PLACES),
    (("while", "as"), ("the",), PEOPLE, WATCHING),
    (("while", "before", "after"), ("the",), _THINGS, _HAPPENING),
    (("as", "when"), ("the",), _THINGS, _HAPPENING, _PREPOSITIONS, ("the",), _PLACES),
)
"""Distractor phrases: for each position of a phrase, the words that can fill it."""

FramePart = tuple[str, bool] | None
"""A word and its mark (True = the label follows from it), or None: a slot for fillers."""

CLAUSE_SIZE = 8
"""Fewest tokens of a distractor clause."""

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

_Item = TypeVar("_Item")


class Sentence(NamedTuple):
    """Tokens and, for each, whether the label follows from it."""

    words: tuple[str, ...]
    rationale: tuple[bool, ...]


def pick(draw: np.random.Generator, choices: Sequence[_Item]) -> _Item:
    """One of `choices`, all equally likely."""
    return choices[int(draw.integers(len(choices)))]


def unfold(frame: str, chosen: Mapping[str, tuple[str, bool]]) -> list[FramePart]:
    """The parts of a frame, with names in capitals replaced."""
    return [None if w == "*" else chosen.get(w, (w, False)) for w in frame.split()]


def distractors_in(parts: Sequence[FramePart]) -> int:
    """Number of words that are not in the rationale."""
    return sum(part is not None and not part[1] for part in parts)


def surround(
    draw: np.random.Generator, core: list[FramePart], distractors: int, *, most: int, negate: bool
) -> list[FramePart]:
    """Put up to `most` clauses about people around the clause that decides the label.

    They have the words and structure of the deciding clause, so that positions relative to 'did', a
    verb or 'the' carry no information.

    Args:
        draw: random numbers.
        core: parts of the deciding clause.
        distractors: unmarked words that the sentence will have; clauses that do not fit are left
            out.
        most: largest number of clauses; the number is drawn.
        negate: whether the first clause, if any, has a negation (a decoy). It then follows the
            deciding clause, so that the order tells which clause is negated.
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


def complete(draw: np.random.Generator, parts: Sequence[FramePart], distractors: int) -> Sentence:
    """Fill the slots until the sentence has `distractors` unmarked words, including the full stop.

    Raises:
        ValueError: the parts already have more.
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


_NAME = "planted"
FEWEST = 15
"""Words of an example outside the rationale, at least."""
_NEGATED = 0.3
"""Share of examples whose deciding clause is negated."""
_DECOYS = 0.2
"""Share of unnegated examples whose distractor clause, if any, is negated."""
_FRAMES = (
    "* the A * did HOW DOES the B *",
    "* HOW did the A * DOES the B *",
    "* it was the A * that did HOW DOES the B *",
)


class PlantedSettings(Options):
    """Options of the generated examples."""

    train: int = Field(default=6000, ge=1, le=10**9)
    """Training examples."""
    dev: int = Field(default=1000, ge=1, le=10**9)
    """Development examples."""
    test: int = Field(default=1000, ge=1, le=10**9)
    """Test examples."""
    max_distractors: int = Field(default=60, ge=FEWEST, le=10**4)
    """Most words of an example outside the rationale."""


_USUAL = PlantedSettings()


def planted(*, seed: int = 0, settings: PlantedSettings = _USUAL) -> Source:
    """The source; a row depends only on the seed, its split and its number."""
    splits: dict[str, tuple[Path, ...]] = {"train": (), "dev": (), "test": ()}
    reader = partial(_read, seed=seed, settings=settings)
    return Source(_NAME, 1, LabelSpec("classes", names=KINDS), splits, reader)


def _read(split: str, *, seed: int, settings: PlantedSettings) -> Iterator[RawExample]:
    """Generate the rows of one split, in which classes are equally frequent."""
    for row in range(getattr(settings, split)):
        label = KINDS[row % len(KINDS)]
        words, marked = _sentence(generator(seed, _NAME, split, row), settings, label)
        yield RawExample(f"{split}-{row}", (words,), label, rationale=(marked,))


def _sentence(draw: np.random.Generator, settings: PlantedSettings, label: str) -> Sentence:
    negated = bool(draw.random() < _NEGATED)
    mammal_first = (label == "mammal") != negated
    first, second = (
        (pick(draw, ANIMALS[kind]), True) for kind in (KINDS if mammal_first else KINDS[::-1])
    )
    how = (pick(draw, NEGATIONS), True) if negated else (pick(draw, ADVERBS), False)
    chosen = {"A": first, "B": second, "HOW": how, "DOES": (pick(draw, VERBS), False)}
    size = int(draw.integers(FEWEST, settings.max_distractors + 1))
    # In the shortest sentences, the longest frame leaves no room for a distractor clause.
    frame = pick(draw, _FRAMES) if size > FEWEST + 3 else pick(draw, _FRAMES[:2])
    decoy = not negated and bool(draw.random() < _DECOYS)
    parts = surround(draw, unfold(frame, chosen), size - 1, most=2, negate=decoy)
    return complete(draw, parts, size)


def _build(request: SourceRequest, options: PlantedSettings) -> Source:
    request.without_folder("planted sentences are generated, not read")
    return planted(seed=request.seed, settings=options)


PLANTED = SourceComponent(
    name=_NAME,
    help="generated sentences whose label follows from a few known words",
    build=_build,
    options=PlantedSettings,
    capabilities=frozenset({"generated", "rationales"}),
)
