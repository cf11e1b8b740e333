"""Words of a text, and their ids."""

from __future__ import annotations

import re
import time
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
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
        ("I can't; you’re “fine”, don`t.", "I ca n't ; you 're “ fine ” , do n't ."),
        ("The dogs' o'clock isn't hers'", "The dogs ' o'clock is n't hers '"),
        ("We cannot, it's so-bad-it's-fun", "We can not , it 's so-bad-it's-fun"),
        ("e.g., no. 5 (the U.S.). Oh no. 7", "e.g. , no. 5 ( the U.S. ) . Oh no. 7"),
        ("thank u. Only 2. Not I. Done.", "thank u . Only 2 . Not I . Done ."),
        ("wait... 10:30--or 1,000?!", "wait ... 10:30 -- or 1,000 ? !"),
        ("maybe.<br /><br>Then <b>", "maybe . Then < b >"),
        ("See (http://a.org/x?y=1&z). www.b.c!", "See ( http://a.org/x?y=1&z ) . www.b.c !"),
        ("我喜欢。ひらがなはカタカナ", "我 喜 欢 。 ひ ら が な は カタカナ"),
        ("เก่งน้ำ ຮັກ ខ្មែរ မြန်မာ", "เก่ ง น้ำ ຮັ ກ ខ្មែ រ မြ န် မာ"),
        ("हिन्दी है। cafe\u0301 ¿qué… 한국어", "हिन्दी है । cafe\u0301 ¿ qué … 한국어"),
        ("so👍🏽👨‍👩‍👧🇩🇪🇫🇷❤️ #️⃣", "so 👍🏽 👨‍👩‍👧 🇩🇪 🇫🇷 ❤️ #️⃣"),
        ("  \t ", ""),
        ("", ""),
    ],
)
def test_words_of_a_text(text: str, words: str) -> None:
    assert Tokenizer()(text).words == tuple(words.split())


def test_keys_are_lowered_and_words_are_not() -> None:
    assert Tokenizer()("The CAT") == (("The", "CAT"), ("the", "cat"))
    assert Tokenizer(lower=False)("The CAT").keys == ("The", "CAT")


_HOSTILE = [
    "a",
    "A.",
    "I",
    "n't",
    "can",
    "1,",
    "http://",
    "www.",
    "<br",
    "เ",
    "ア",
    "👍",
    "\u200d",
    "\u0301",
]
_PIECES = st.sampled_from([*_HOSTILE, *".'\"`-()[<*: \n’…¿"])


@given(st.text() | st.lists(_PIECES).map("".join))
def test_words_hold_the_text_in_order(text: str) -> None:
    def signs(words: str) -> str:
        return re.sub(r"[\s\u200b\ufeff\"'`´’]", "", words)  # quotes change

    words = Tokenizer()(text).words
    assert signs("".join(words)) == signs(text)
    assert all(words)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.lists(_PIECES, min_size=1, max_size=3).map("".join), min_size=1, max_size=3))
def test_time_is_linear_in_the_text(units: list[str]) -> None:
    text = "".join(unit * 20000 for unit in units)
    start = time.process_time()
    Tokenizer()(text)
    assert time.process_time() - start < 10e-6 * len(text)


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
