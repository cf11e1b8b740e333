"""The choices in a new passage: its sentences, or the candidates for a blank.

Legend: N words of a passage.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rss_rl.data.corpora.cloze import PLACEHOLDER, numbered_words, renamed
from rss_rl.data.corpora.passages import cut_passage
from rss_rl.data.sources import Text, Words
from rss_rl.data.tokens import Tokenizer
from rss_rl.errors import DataError
from rss_rl.types import Array, LabelSpec

_ENTITY = "@entity"
_SHOWN_WORDS = 8


@dataclass(frozen=True)
class MarkedPassage:
    """A passage and its question, and the choices for the label.

    texts  passage and question
    marks  int64 [N], index of each word's sentence or candidate, -1 for none
    names  of the sentences (number and first words) or candidates
    """

    texts: tuple[Text, Text]
    marks: Array
    names: tuple[str, ...]


def mark_passage(labels: LabelSpec, passage: Text, question: Text) -> MarkedPassage:
    """Mark a passage in the same way as the training data of the task.

    Sentences are split as for SQuAD. For a blank, candidates are the words that begin with
    @entity, renumbered by their order in the passage as in the training data; without any, all
    words with a letter.

    Raises:
        DataError: a text without words, a question without @placeholder, nothing to choose from.
    """
    passage, question = (t if isinstance(t, str) else " ".join(t) for t in (passage, question))
    for number, text in enumerate((passage, question), start=1):
        if not text.strip():
            raise DataError("has no words", where=f"text {number}")
    if labels.kind == "sentence":
        cut = cut_passage(passage)
        marks = np.array(cut.marks, np.int64)
        names = [_name(k, np.array(cut.words)[marks == k]) for k in range(len(cut.starts))]
        return MarkedPassage((cut.words, question), marks, tuple(names))
    words, asked = _cloze_words(passage), _cloze_words(question)
    if PLACEHOLDER not in asked:
        raise DataError(
            f"no word of the question is {PLACEHOLDER}",
            where="text 2",
            remedy=f'Put it where the answer belongs: "He sat on the {PLACEHOLDER} ."',
        )
    if any(word.startswith(_ENTITY) for word in words):
        return _of_entities(words, asked)
    numbered, numbers = numbered_words(words)
    if not numbers:
        raise DataError("none of its words can be the answer", where="text 1")
    return MarkedPassage((words, asked), np.array(numbered, np.int64), tuple(numbers))


def _cloze_words(text: str) -> Words:
    """The words of a text; @placeholder, @entity7 and the like are one word each."""
    joined: list[str] = []
    for word in Tokenizer(lower=False)(text).words:
        if joined and joined[-1] == "@" and f"@{word}" in text:
            joined[-1] = f"@{word}"
        else:
            joined.append(word)
    return Words(joined)


def _of_entities(words: Words, asked: Words) -> MarkedPassage:
    def entities(text: Words) -> list[tuple[str, str]]:
        return [(word, word.lower() if word.startswith(_ENTITY) else "") for word in text]

    passage, question, marks, found = renamed(entities(words), entities(asked))
    names = [
        given if given == f"{_ENTITY}{number}" else f"{_ENTITY}{number} ({given})"
        for given, number in found.items()
    ]
    return MarkedPassage((passage, question), np.array(marks, np.int64), tuple(names))


def _name(number: int, words: Array) -> str:
    more = " ..." if len(words) > _SHOWN_WORDS else ""
    return f"{number + 1}: {' '.join(words[:_SHOWN_WORDS])}{more}"
