"""Splitting passages into sentences and words, and the marks that number the sentences."""

from __future__ import annotations

import warnings
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import cast

from rss_rl.data.sources import Words
from rss_rl.data.tokens import Tokenizer


@dataclass(frozen=True)
class Passage:
    """A tokenised passage.

    words   of all sentences
    marks   number of each word's sentence
    starts  character offset of each sentence in the text; the first is 0
    """

    words: Words
    marks: tuple[int, ...]
    starts: tuple[int, ...]

    def sentence_at(self, place: int) -> int:
        """Number of the sentence with the character at offset `place` of the text."""
        return bisect_right(self.starts, place) - 1


def cut_passage(text: str) -> Passage:
    """Split a text into sentences and words; a text of white space has no words."""
    tokenizer = Tokenizer(lower=False)
    begins = sentence_starts(text)
    words: list[str] = []
    marks: list[int] = []
    starts: list[int] = []
    for begin, end in zip(begins, [*begins[1:], len(text)], strict=True):
        found = tokenizer(text[begin:end]).words
        if found:
            marks += [len(starts)] * len(found)
            starts.append(begin if starts else 0)
            words += found
    return Passage(Words(words), tuple(marks), tuple(starts))


def sentence_starts(text: str) -> list[int]:
    """Character offsets of the sentences, the first 0, by pysbd's rules for English.

    The sentences are searched for in the text in order, so offsets are right even if pysbd changed
    white space; a sentence that is not found belongs to the one before it.
    """
    starts, place = [0], 0
    for sentence in _cutter()(text):
        core = sentence.strip()
        found = text.find(core, place) if core else -1
        if found >= 0:
            if text[:found].strip():
                starts.append(found)
            place = found + len(core)
    return starts


@lru_cache(maxsize=1)
def _cutter() -> Callable[[str], list[str]]:
    # Imported at first use, like the word tokenizer. Compiling its sources gives warnings about
    # deprecated escapes.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from pysbd import Segmenter

        return cast(Callable[[str], list[str]], Segmenter(language="en", clean=False).segment)
