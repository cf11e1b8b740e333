"""Source data: the label follows from the marked words, needs each, and from no bag of words."""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import islice

import pytest

from rss_rl.data.corpora.planted import ANIMALS, NEGATIONS, PlantedSettings, planted
from rss_rl.data.sources import RawExample, Source

KEY_WORDS = {word: kind for kind, group in ANIMALS.items() for word in group}
KEY_WORDS |= dict.fromkeys(NEGATIONS, "negation")

SMALL = PlantedSettings(train=1500, dev=600, test=600)


@pytest.fixture(scope="module")
def source() -> Source:
    return planted(seed=7, settings=SMALL)


def _seen(example: RawExample) -> list[tuple[str, bool]]:
    """What the words of the key types mean, decoys included, and whether they are marked."""
    assert example.rationale is not None
    pairs = zip(example.texts[0], example.rationale[0], strict=True)
    return [(KEY_WORDS[word], mark) for word, mark in pairs if word in KEY_WORDS]


def test_the_label_follows_from_the_marked_words(source: Source) -> None:
    for example in source.read("train"):
        marked = [meaning for meaning, mark in _seen(example) if mark]
        above, below = (meaning for meaning in marked if meaning != "negation")
        assert example.label == (below if "negation" in marked else above)


def test_each_marked_word_is_needed() -> None:
    """Who sees all words of the key types but one marked word can be wrong about the label."""
    labels: dict[str, Counter[str]] = defaultdict(Counter)
    reduced = set()
    for example in planted(seed=7, settings=PlantedSettings(train=6000)).read("train"):
        seen = _seen(example)
        labels[str([meaning for meaning, _ in seen])][str(example.label)] += 1
        for i, (_, marked) in enumerate(seen):
            left = [meaning for meaning, _ in seen]
            del left[i]
            labels[str(left)][str(example.label)] += 1
            if marked:
                reduced.add(str(left))
    often = [left for left in reduced if labels[left].total() >= 40]
    assert len(often) >= 8
    assert [left for left in often if len(labels[left]) == 1] == []


def test_rows_depend_on_seed_split_and_number_only(source: Source) -> None:
    def first(source: Source, split: str = "train") -> list[RawExample]:
        return list(islice(source.read(split), 50))

    longer = planted(seed=7, settings=PlantedSettings(train=2000, dev=5, test=5))
    assert first(source) == first(source) == first(longer)
    other = planted(seed=8, settings=SMALL)
    assert all(a.texts != b.texts for a, b in zip(first(source), first(other), strict=True))
    dev = first(source, "dev")
    assert all(a.texts != b.texts for a, b in zip(first(source), dev, strict=True))
