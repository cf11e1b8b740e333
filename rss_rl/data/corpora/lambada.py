"""LAMBADA as cloze reading: the last word of a passage, where earlier sentences contain it.

A line is a tokenised passage. Its last sentence, with the placeholder instead of the last word, is
the question; the sentences before it are the passage. Examples whose answer is not in that passage
are left out and counted. Candidates are the different words of the passage, ignoring case: those
with a letter, or with candidates=all every token. The development file is split into train and dev
(80% and 20%), as the authors give no training examples of this form.
"""

from __future__ import annotations

__all__ = ["LAMBADA", "last_sentence"]

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Literal

from pydantic import Field

from rss_rl.components import Options
from rss_rl.data.corpora.cloze import CANDIDATE, PLACEHOLDER, no_answer, numbered_words
from rss_rl.data.corpora.cuts import development_rows
from rss_rl.data.corpora.folders import source_files, source_folder
from rss_rl.data.corpora.labelled_lines import bad_line, count_lines
from rss_rl.data.sources import RawExample, ReaderSource, Row, SourceComponent, SourceRequest, Words

_DEVELOPMENT = "lambada_development_plain_text.txt"
_FILES = {"train": _DEVELOPMENT, "dev": _DEVELOPMENT, "test": "lambada_test_plain_text.txt"}
_DEV_SHARE = 0.2
_ENDS = frozenset((".", "!", "?", "?!", "!?"))
_CLOSING = frozenset(("''", "'", ")", "\N{RIGHT DOUBLE QUOTATION MARK}"))
"""Tokens that may follow the end of a sentence."""


def last_sentence(words: Sequence[str]) -> int:
    """Index of the first word of the last sentence; 0 if there is only one."""
    for place in range(len(words) - 2, -1, -1):
        if words[place] in _ENDS:
            begin = place + 1
            while begin < len(words) - 1 and words[begin] in _CLOSING:
                begin += 1
            return begin
    return 0


def _read(split: str, path: Path, *, seed: int, all_tokens: bool) -> Iterator[Row]:
    wanted = split == "dev"
    dev = development_rows(count_lines(path), seed, "lambada", _DEV_SHARE)
    with path.open("rb") as stream:
        for row, raw in enumerate(stream, start=1):
            if not raw.strip() or (split != "test" and dev[row - 1] != wanted):
                continue
            try:
                words = [part.decode("utf-8") for part in raw.split()]
            except UnicodeDecodeError:
                yield bad_line(path, row, raw, "bytes that are not UTF-8")
                continue
            yield _example(path, row, words, all_tokens)


def _example(path: Path, row: int, words: list[str], all_tokens: bool) -> Row:
    begin = last_sentence(words)
    marks, numbers = numbered_words(words[:begin], all_tokens=all_tokens)
    answer = numbers.get(words[-1].lower())
    if answer is None:
        return no_answer(str(path), row, " ".join(words))
    return RawExample(
        id=f"{path.stem}-{row}",
        texts=(Words(words[:begin]), Words((*words[begin:-1], PLACEHOLDER))),
        label=answer,
        marks=marks,
        file=str(path),
        row=row,
    )


class LambadaOptions(Options):
    """The candidates for the last word."""

    candidates: Literal["words", "all"] = Field(
        default="words", description="words: tokens with a letter; all: every token."
    )


def _build(request: SourceRequest, options: LambadaOptions) -> ReaderSource:
    files = source_files(source_folder("lambada", request, _DEVELOPMENT), _FILES)
    reader = partial(_read, seed=request.seed, all_tokens=options.candidates == "all")
    return ReaderSource("lambada", 2, CANDIDATE, files, reader)


LAMBADA = SourceComponent(
    name="lambada",
    help="LAMBADA: the last word of a passage, where earlier sentences contain it",
    build=_build,
    options=LambadaOptions,
    capabilities=frozenset({"passages"}),
    needs="--from FOLDER with lambada_{development,test}_plain_text.txt",
    source="Paperno et al., ACL 2016",
)
