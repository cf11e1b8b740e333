"""SQuAD 1.1 as answer-sentence selection: which sentence of a passage answers the question.

Slot 0 is the passage, whose words are marked with the number of their sentence; slot 1 is the
question. The answer is the sentence in which the annotated answer begins; if annotators disagree,
the most frequent one, and of equally frequent ones the one that was annotated first.

With train-v1.1.json and dev-v1.1.json the official dev split is the test split, and a tenth of the
training articles is the development split. With dev-v1.1.json alone its articles are split into
all three (80%, 10% and 10%). No article is in two splits, as its passages share vocabulary.
A JSON file is a single value, so it is held in memory while it is read.
"""

from __future__ import annotations

import json
import warnings
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Annotated, Any, cast

from pydantic import Field, NonNegativeInt, ValidationError

from rss_rl.components import NoOptions
from rss_rl.data.corpora.cuts import DEV_SHARE, cut_groups
from rss_rl.data.sources import (
    BadRow,
    RawExample,
    Row,
    Source,
    SourceComponent,
    SourceRequest,
    Words,
    files_in,
)
from rss_rl.data.tables import RowModel
from rss_rl.data.tokens import Tokenizer
from rss_rl.errors import DataError
from rss_rl.json_files import first_fault
from rss_rl.types import LabelSpec

_TRAIN, _DEV = "train-v1.1.json", "dev-v1.1.json"
_REMEDY = "Use the file of SQuAD 1.1 as its authors give it"


def _read(split: str, path: Path, *, shares: Mapping[str, float], seed: int) -> Iterator[Row]:
    """Stream one split; rows are the questions of the file, counted from 1.

    Args:
        shares: of the articles, for each split that is cut from a common file.
    """
    articles = _articles(path)
    owner = {}
    if split in shares:
        owner = cut_groups([title for title, _ in articles], shares, seed)
    row = 0
    for title, paragraphs in articles:
        wanted = owner.get(title, split) == split
        for text, questions in paragraphs:
            if wanted:
                yield from _examples(path, row, text, questions)
            row += len(questions)


def _examples(path: Path, row: int, text: str, questions: list[Any]) -> Iterator[Row]:
    passage = cut_passage(text)
    for number, question in enumerate(questions, start=row + 1):
        try:
            parsed = _Question.model_validate(question)
            sentence = _sentence(passage, text, parsed)
        except ValueError as error:
            fault = first_fault(error) if isinstance(error, ValidationError) else str(error)
            yield BadRow(str(path), number, fault, _REMEDY, json.dumps(question)[:1000])
            continue
        yield RawExample(
            id=str(question.get("id", number)),
            texts=(passage.words, parsed.question),
            label=sentence,
            marks=passage.marks,
            file=str(path),
            row=number,
        )


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
    offsets = sentence_starts(text)
    words: list[str] = []
    marks: list[int] = []
    starts: list[int] = []
    for start, end in zip(offsets, [*offsets[1:], len(text)], strict=True):
        cut = tokenizer(text[start:end]).words
        if cut:
            marks += [len(starts)] * len(cut)
            starts.append(start if starts else 0)
            words += cut
    return Passage(Words(words), tuple(marks), tuple(starts))


def sentence_starts(text: str) -> list[int]:
    """Character offsets of the sentences, the first 0, by pysbd's rules for English.

    The sentences are searched for in the text in order, so offsets are right even if pysbd changed
    white space; a sentence that is not found belongs to the one before it.
    """
    starts, place = [0], 0
    for sentence in _cutter()(text):
        core = sentence.strip()
        at = text.find(core, place) if core else -1
        if at >= 0:
            if text[:at].strip():
                starts.append(at)
            place = at + len(core)
    return starts


@lru_cache(maxsize=1)
def _cutter() -> Callable[[str], list[str]]:
    # Imported at first use. Compiling its sources gives warnings about deprecated escapes.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from pysbd import Segmenter

        return cast(Callable[[str], list[str]], Segmenter(language="en", clean=False).segment)


class _Answer(RowModel):
    answer_start: NonNegativeInt
    text: str


class _Question(RowModel):
    question: str
    answers: Annotated[list[_Answer], Field(min_length=1)]


def _sentence(passage: Passage, text: str, question: _Question) -> int:
    """Number of the sentence that answers a question.

    Raises:
        ValueError: an answer is not where it says.
    """
    votes: Counter[int] = Counter()
    for answer in question.answers:
        if not answer.text.strip() or not text.startswith(answer.text, answer.answer_start):
            raise ValueError(f"the answer is not at character {answer.answer_start} of the passage")
        spaces = len(answer.text) - len(answer.text.lstrip())
        votes[passage.sentence_at(answer.answer_start + spaces)] += 1
    return votes.most_common(1)[0][0]


def _articles(path: Path) -> list[tuple[str, list[tuple[str, list[Any]]]]]:
    """Title of each article, and its paragraphs, text and questions.

    Raises:
        DataError: it is not a SQuAD file.
    """
    try:
        tree = json.loads(path.read_text(encoding="utf-8"))
        return [
            (str(each["title"]), [(str(p["context"]), list(p["qas"])) for p in each["paragraphs"]])
            for each in tree["data"]
        ]
    except (OSError, ValueError, RecursionError, KeyError, TypeError) as error:
        raise DataError(
            f"is not a SQuAD file ({type(error).__name__}: {error})",
            where=str(path),
            remedy=_REMEDY,
        ) from error


def _build(request: SourceRequest, options: NoOptions) -> Source:
    folder = request.folder("squad", _DEV)
    files = {"train": _TRAIN, "dev": _TRAIN, "test": _DEV}
    shares = {"train": 1 - DEV_SHARE, "dev": DEV_SHARE}
    if not (folder / _TRAIN).is_file():
        files = dict.fromkeys(files, _DEV)
        shares = {"train": 1 - 2 * DEV_SHARE, "dev": DEV_SHARE, "test": DEV_SHARE}
    reader = partial(_read, shares=shares, seed=request.seed)
    return Source("squad", 2, LabelSpec("sentence"), files_in(folder, files), reader)


SQUAD = SourceComponent(
    name="squad",
    help="SQuAD 1.1: which sentence of a passage answers a question",
    build=_build,
    capabilities=frozenset({"passages"}),
    needs="--from FOLDER with dev-v1.1.json and, optionally, train-v1.1.json",
    source="Rajpurkar et al., EMNLP 2016",
)
