"""Cloze reading: which word or entity of a passage fills the blank of a question.

Slot 0 is the passage, whose tokens are marked with the number of their candidate; slot 1 is the
question with PLACEHOLDER in place of the answer. Candidates are numbered by their first occurrence
in the passage. Examples whose answer is not in the passage are left out and counted.

LAMBADA: a line is a tokenised passage. Its last sentence, with the placeholder instead of the last
word, is the question; the sentences before it are the passage. Candidates are the different words
of the passage with a letter, ignoring case. The development file is split into train and dev (80%
and 20%), as the authors give no training examples of this form.

CNN and Daily Mail (Hermann et al. 2015): a news story, and a summary of it with a blank. Files are
as the authors' script writes them, one question each: the address of the story, the story, the
question with @placeholder, the answer and the names of the entities, separated by empty lines.
Entities are renamed after their number: a name only says which mentions belong together, and the
first entities of all passages share their vectors.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from rss_rl.data.corpora.cuts import cut_rows
from rss_rl.data.corpora.sentence_sets import split_lines
from rss_rl.data.sources import BadRow, Row, SourceComponent, Words, read_folder
from rss_rl.data.tables import Record, ascii_words, examples
from rss_rl.types import LabelSpec

PLACEHOLDER = "@placeholder"
_CANDIDATE = LabelSpec("candidate")

_DEVELOPMENT = "lambada_development_plain_text.txt"
_FILES = {"train": _DEVELOPMENT, "dev": _DEVELOPMENT, "test": "lambada_test_plain_text.txt"}
_DEV_SHARE = 0.2
_ENDS = frozenset((".", "!", "?", "?!", "!?"))
_CLOSING = frozenset(("''", "'", ")", "\N{RIGHT DOUBLE QUOTATION MARK}"))
"""Tokens that may follow the end of a sentence."""
_FOLDERS = {"train": "training", "dev": "validation", "test": "test"}
_ENDING = ".question"
_PARTS = 5
_ENTITY = re.compile(r"@entity\d+")
_REMEDY = "Write it again with the authors' script"
_NO_ANSWER = "the answer is not in the passage"


class _Numbers(dict[str, int]):
    """Numbers names in the order in which they are first looked up."""

    def __missing__(self, name: str) -> int:
        number = self[name] = len(self)
        return number


def numbered_words(words: Iterable[str]) -> tuple[tuple[int, ...], dict[str, int]]:
    """The number of each word, ignoring case (-1: it has no letter), and the words by number."""
    numbers = _Numbers()
    marks = tuple(numbers[word.lower()] if any(map(str.isalpha, word)) else -1 for word in words)
    return marks, numbers


def renamed(
    passage: Sequence[tuple[str, str]], question: Sequence[tuple[str, str]]
) -> tuple[Words, Words, tuple[int, ...], dict[str, int]]:
    """Rename entities `@entity0`, `@entity1` and so on, those only in the question last.

    Args:
        passage, question: for each token its word and entity, empty for none.

    Returns:
        The words of both, the entity number (or -1) of each word of the passage, and the number of
        each entity of the passage.
    """
    numbers = _Numbers()
    marks = tuple(numbers[entity] if entity else -1 for _, entity in passage)
    of_passage = dict(numbers)

    def words(tokens: Sequence[tuple[str, str]]) -> Words:
        return Words(f"@entity{numbers[entity]}" if entity else word for word, entity in tokens)

    return words(passage), words(question), marks, of_passage


def last_sentence(words: Sequence[str]) -> int:
    """Index of the first word of the last sentence; 0 if there is only one."""
    for place in range(len(words) - 2, -1, -1):
        if words[place] in _ENDS:
            start = place + 1
            while start < len(words) - 1 and words[start] in _CLOSING:
                start += 1
            return start
    return 0


def _read_lambada(split: str, path: Path, *, seed: int) -> Iterator[Row]:
    keep = partial(cut_rows, name="lambada", seed=seed, share=_DEV_SHARE)
    return examples(split_lines(split, path, keep), _passage)


def _passage(line: Record) -> Row:
    words = ascii_words(line.values["line"])
    start = last_sentence(words)
    marks, numbers = numbered_words(words[:start])
    answer = numbers.get(words[-1].lower())
    if answer is None:
        return line.bad(_NO_ANSWER, by_convention=True)
    texts = Words(words[:start]), Words((*words[start:-1], PLACEHOLDER))
    return line.example(f"{Path(line.file).stem}-{line.row}", texts, answer, marks=marks)


LAMBADA = SourceComponent(
    name="lambada",
    help="LAMBADA: the last word of a passage, where earlier sentences contain it",
    build=read_folder(2, _CANDIDATE, _FILES, _read_lambada, name="lambada", seeded=True),
    capabilities=frozenset({"passages"}),
    needs="--from FOLDER with lambada_{development,test}_plain_text.txt",
    source="Paperno et al., ACL 2016",
)


def _read_cnn(split: str, folder: Path) -> Iterator[Row]:
    for name in sorted(name for name in os.listdir(folder) if name.endswith(_ENDING)):
        path = folder / name
        try:
            yield _story(Record(str(path), 1, {"text": path.read_text(encoding="utf-8")}))
        except (OSError, UnicodeDecodeError) as error:
            yield BadRow(str(path), 1, f"cannot be read ({error})", _REMEDY)


def _story(file: Record) -> Row:
    parts = [part.strip() for part in file.values["text"].split("\n\n", _PARTS - 1)]
    if len(parts) != _PARTS:
        return file.bad(f"malformed: {len(parts)} of {_PARTS} parts between empty lines", _REMEDY)
    _, story, summary, answer, _ = parts
    if PLACEHOLDER not in summary.split():
        return replace(file, row=5).bad(f"the question has no {PLACEHOLDER}", _REMEDY)
    if not _ENTITY.fullmatch(answer):
        return replace(file, row=7).bad("the answer is not an entity", _REMEDY)
    passage, question, marks, numbers = renamed(_tokens(story), _tokens(summary))
    if answer not in numbers:
        return file.bad(_NO_ANSWER, by_convention=True)
    return file.example(Path(file.file).stem, (passage, question), numbers[answer], marks=marks)


def _tokens(text: str) -> list[tuple[str, str]]:
    """Each word and its entity (empty for none)."""
    return [(word, word if _ENTITY.fullmatch(word) else "") for word in text.split()]


CNN_DAILY_MAIL = SourceComponent(
    name="cnn-dailymail",
    help="CNN / Daily Mail: the entity in a story that fills a blank",
    build=read_folder(2, _CANDIDATE, _FOLDERS, _read_cnn, name="cnn-dailymail", inner="questions"),
    capabilities=frozenset({"passages"}),
    needs="--from FOLDER with training, validation and test, full of .question files",
    source="Hermann et al., NIPS 2015",
)
