"""From text to words, and from words to the keys that the vocabulary counts."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple, cast

from rss_rl.data.sources import Text, Words

TOKENIZER_NAME = "nltk-word"

# NLTK's word tokenizer expects one sentence: it splits off a full stop only at the end of its text.
# So texts are split into sentences first.
_SENTENCE_END = re.compile(r"""(?<=[.!?])(["')\]]*)\s+""")
_NO_END = re.compile(
    r"(?:^|[\s(\"'])(?:(?:\w\.)+|(?:mr|mrs|ms|dr|st|jr|sr|vs|etc|prof|gen|no|inc|co)\.)$", re.I
)


class Tokens(NamedTuple):
    """Words of one sentence: `words` as written, `keys` as the vocabulary knows them."""

    words: tuple[str, ...]
    keys: tuple[str, ...]


class Tokenizer:
    """NLTK's NLTKWordTokenizer, sentence by sentence; given tokens are kept as they are.

    Args:
        lower: lower-case the keys, except those of given tokens that are not `Words`.
    """

    def __init__(self, lower: bool = True) -> None:
        self.lower = lower

    def __call__(self, text: Text) -> Tokens:
        """The tokens of `text`; none for a text of white space."""
        if isinstance(text, tuple) and not isinstance(text, Words):
            return Tokens(text, text)
        if not isinstance(text, str):
            words: tuple[str, ...] = text
        else:
            words = _cut(text)
        return Tokens(words, tuple(word.lower() for word in words) if self.lower else words)


@lru_cache(maxsize=64)  # datasets of pairs repeat a sentence in adjacent rows
def _cut(text: str) -> tuple[str, ...]:
    tokenize = _nltk()
    return tuple(word for sentence in _sentences(text) for word in tokenize(sentence))


@lru_cache(maxsize=1)
def _nltk() -> Callable[[str], list[str]]:
    # Imported at first use: it takes most of a second, and reading prepared data does not need it.
    from nltk.tokenize import NLTKWordTokenizer

    return cast(Callable[[str], list[str]], NLTKWordTokenizer().tokenize)


def _sentences(text: str) -> list[str]:
    """Split after '.', '!' or '?' and white space, but not after an initial or abbreviation."""
    sentences, start = [], 0
    for end in _SENTENCE_END.finditer(text):
        if not _NO_END.search(text[start : end.start()]):
            sentences.append(text[start : end.end(1)])
            start = end.end()
    return [*sentences, text[start:]]
