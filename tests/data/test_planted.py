"""Source data: the label follows from the marked words, needs each, and from no bag of words."""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import islice

import pytest

from rss_rl.data.corpora.planted import (
    ANIMALS,
    KIND_WORDS,
    NEGATIONS,
    PlantedSettings,
    planted,
)
from rss_rl.data.sources import RawExample, Source, SourceRequest, named_source
from rss_rl.errors import DataError

KEY_WORDS = {
    word: kind for words in (ANIMALS, KIND_WORDS) for kind, group in words.items() for word in group
} | dict.fromkeys(NEGATIONS, "negation")

SMALL = PlantedSettings(train=1500, dev=600, test=600)


@pytest.fixture(scope="module", params=[False, True], ids=["single", "pairs"])
def source(request: pytest.FixtureRequest) -> Source:
    return planted(pairs=request.param, seed=7, settings=SMALL)


def _marked(example: RawExample) -> list[list[str]]:
    """What the marked words of each sentence mean, in order."""
    assert example.rationale is not None
    return [
        [KEY_WORDS[word] for word, mark in zip(words, marks, strict=True) if mark]
        for words, marks in zip(example.texts, example.rationale, strict=True)
    ]


def _seen(example: RawExample) -> list[list[tuple[str, bool]]]:
    """What the words of the key types mean, decoys included, and whether they are marked."""
    assert example.rationale is not None
    return [
        [(KEY_WORDS[w], mark) for w, mark in zip(words, marks, strict=True) if w in KEY_WORDS]
        for words, marks in zip(example.texts, example.rationale, strict=True)
    ]


def _oracle(meanings: list[list[str]]) -> str:
    """The label, from the meanings of the marked words alone."""
    negated = sum(words.count("negation") for words in meanings) % 2 == 1
    animals = [[word for word in words if word != "negation"] for words in meanings]
    if len(meanings) == 1:
        above, below = animals[0]
        return below if negated else above
    winner, loser, _ = animals[0]
    if set(animals[1]) != {winner, loser}:
        return "neutral"
    return "entailment" if (animals[1] == [winner, loser]) != negated else "contradiction"


def test_the_label_follows_from_the_marked_words(source: Source) -> None:
    for example in source.read("train"):
        assert _oracle(_marked(example)) == example.label


@pytest.mark.parametrize("pairs", [False, True], ids=["single", "pairs"])
def test_each_marked_word_is_needed(pairs: bool) -> None:
    """Who sees all words of the key types but one marked word can be wrong about the label.

    Except in neutral pairs, which some of their words can tell.
    """
    labels: dict[str, Counter[str]] = defaultdict(Counter)
    reduced = set()
    settings = PlantedSettings(train=6000, usual=0.5)
    for example in planted(pairs=pairs, seed=7, settings=settings).read("train"):
        seen = _seen(example)
        labels[str([[meaning for meaning, _ in words] for words in seen])][str(example.label)] += 1
        for s, words in enumerate(seen):
            for i, (_, marked) in enumerate(words):
                left = [[meaning for meaning, _ in words] for words in seen]
                del left[s][i]
                labels[str(left)][str(example.label)] += 1
                if marked and example.label != "neutral":
                    reduced.add(str(left))
    often = [left for left in reduced if labels[left].total() >= 40]
    assert len(often) >= 8
    assert [left for left in often if len(labels[left]) == 1] == []


def test_rows_depend_on_seed_split_and_number_only(source: Source) -> None:
    def first(source: Source, split: str = "train") -> list[RawExample]:
        return list(islice(source.read(split), 50))

    pairs = source.sentences == 2
    longer = planted(pairs=pairs, seed=7, settings=PlantedSettings(train=2000, dev=5, test=5))
    assert first(source) == first(source) == first(longer)
    other = planted(pairs=pairs, seed=8, settings=SMALL)
    assert all(a.texts != b.texts for a, b in zip(first(source), first(other), strict=True))
    dev = first(source, "dev")
    assert all(a.texts != b.texts for a, b in zip(first(source), dev, strict=True))


@pytest.mark.parametrize(
    ("options", "fragment"),
    [
        ({"trian": "3"}, "did you mean 'train'"),
        ({"train": "many"}, "option train: Input should be a valid integer"),
        ({"train": "0"}, "option train: Input should be greater than or equal to 1 .got 0"),
        ({"min_distractors": "14"}, "option min_distractors: .*equal to 15 .got 14"),
        (
            {"min_distractors": "40", "max_distractors": "30"},
            "max_distractors=30 is below",
        ),
        ({"words": "9"}, "option words: .*less than or equal to 8"),
        ({"decoys": "1.5"}, "option decoys: .*less than or equal to 1"),
        ({"negations": "nan"}, "option negations: Input should be a valid number"),
    ],
)
def test_bad_options_are_refused(options: dict[str, str], fragment: str) -> None:
    with pytest.raises(DataError, match=fragment):
        named_source("planted", SourceRequest(options=options))
