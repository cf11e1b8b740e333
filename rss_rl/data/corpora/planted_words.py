"""The words of planted sentences.

Only animals, their kinds and negations decide labels, and of these only negations also occur in
distractors (decoys). All other words are distractors, drawn independently of the label. Words of a
tuple are interchangeable.
"""

from __future__ import annotations

KINDS = ("mammal", "bird", "fish")

ANIMALS: dict[str, tuple[str, ...]] = {
    "mammal": ("fox", "wolf", "hare", "badger", "otter", "lynx", "bear", "mole"),
    "bird": ("owl", "heron", "falcon", "raven", "swan", "crane", "robin", "eagle"),
    "fish": ("trout", "salmon", "perch", "pike", "carp", "eel", "cod", "tench"),
}
"""Animals by kind, as sentences and premises name them."""

KIND_WORDS: dict[str, tuple[str, ...]] = {
    "mammal": ("mammal", "beast"),
    "bird": ("bird", "fowl"),
    "fish": ("fish", "swimmer"),
}
"""Names of the kinds, as hypotheses use them."""

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
