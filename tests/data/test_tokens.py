"""Words of a text, and their ids."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rss_rl.data.tokens import Tokenizer
from rss_rl.data.vocabulary import PAD, UNKNOWN, Vocabulary


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("The dog isn't Red.", "The dog is n't Red ."),
        ("It was dull. We left early!", "It was dull . We left early !"),
        ("Dr. Lee met Mr. Fox. Both smiled.", "Dr. Lee met Mr. Fox . Both smiled ."),
        ("J. Smith lives in the U.S. now.", "J. Smith lives in the U.S. now ."),
        ('He said "no". Why?', "He said `` no '' . Why ?"),
        ("one\n\ntwo", "one two"),
        ("  \t ", ""),
        ("", ""),
    ],
)
def test_words_of_a_text(text: str, words: str) -> None:
    assert Tokenizer()(text).words == tuple(words.split())


def test_keys_are_lowered_and_words_are_not() -> None:
    assert Tokenizer()("The CAT") == (("The", "CAT"), ("the", "cat"))
    assert Tokenizer(lower=False)("The CAT").keys == ("The", "CAT")


@given(st.text(max_size=200))
def test_any_text_is_tokenised_without_losing_letters(text: str) -> None:
    words = Tokenizer()(text).words
    kept = "".join(sign for word in words for sign in word if sign.isalnum())
    assert kept == "".join(sign for sign in text if sign.isalnum())
    assert all(words)


def test_vocabulary_is_ordered_by_count_then_word() -> None:
    train = Counter({"b": 2, "a": 2, "c": 5, "<unk>": 9})
    vocabulary = Vocabulary.count(train, Counter({"z": 9, "c": 1, "y": 1}))
    assert vocabulary.words == ("<pad>", "<unk>", "c", "a", "b", "z", "y")
    assert vocabulary.trainable == 5


def test_unknown_words_and_words_written_like_padding() -> None:
    vocabulary = Vocabulary.count(Counter({"<pad>": 3, "a": 1}), Counter())
    assert vocabulary.ids(["a", "q", "<pad>"]).tolist() == [2, UNKNOWN, UNKNOWN]
    assert PAD not in vocabulary.ids(["<pad>"])


def test_vocabulary_loads_what_it_saved(tmp_path: Path) -> None:
    vocabulary = Vocabulary.count(Counter(["naïve", '"', "\n", "日本"]), Counter(["x"]))
    vocabulary.save(tmp_path / "v.json")
    assert Vocabulary.load(tmp_path / "v.json", len(vocabulary), 6) == vocabulary
