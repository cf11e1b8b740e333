"""First pass: a split is streamed, tokenised, checked and counted into a temporary Arrow file.

Only one record batch is held in memory at a time, and the word counts.
"""

from __future__ import annotations

import hashlib
import math
import sys
from array import array
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any, get_args

import pyarrow as pa

from rss_rl.data.checks import Fault, LabelChecker, Rejects, example_fault, length_fault, text_key
from rss_rl.data.manifest import Known
from rss_rl.data.shard import split_schema
from rss_rl.data.sources import BadRow, Progress, RawExample, Source
from rss_rl.data.tokens import Tokenizer, Tokens
from rss_rl.errors import DataError

BLOCK_ROWS = 1024
_BLOCK_TOKENS = 1 << 18
"""A record batch also ends after this many tokens, so that long documents do not make it large."""


@dataclass
class StagedSplit:
    """Results of the first pass over a split; `path` is the temporary Arrow file.

    tokens, longest and squares are sums, maxima and sums of squares of the lengths in a slot; cut
    counts rows. known: see `rss_rl.data.manifest.SplitInfo`. keys: `text_key` of each row, until
    texts and in_train are counted.
    """

    path: Path
    known: tuple[Known, ...]
    tokens: list[int]
    longest: list[int]
    squares: list[int]
    rows: int = 0
    cut: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    texts: int = 0
    in_train: int = 0
    keys: array[int] = field(default_factory=lambda: array("Q"))

    def length_sd(self) -> tuple[float, ...]:
        """Standard deviation of the sentence length in each slot."""
        return tuple(
            math.sqrt(self.rows * squares - tokens**2) / self.rows
            for tokens, squares in zip(self.tokens, self.squares, strict=True)
        )

    def blocks(self) -> Iterator[Any]:
        """The record batches of the file, one by one."""
        with pa.memory_map(str(self.path)) as file:
            reader = pa.ipc.open_file(file)
            for i in range(reader.num_record_batches):
                yield reader.get_batch(i)


@dataclass(frozen=True)
class Stage:
    """The first pass of a preparation: its source, checks, settings and target folder.

    max_words: of a text, which is cut; None: any number.
    """

    source: Source
    folder: Path
    tokenizer: Tokenizer
    labels: LabelChecker
    rejects: Rejects
    progress: Progress
    max_words: int | None

    def run(self, split: str) -> StagedSplit:
        """Stream one split into a temporary file and count its words.

        Raises:
            DataError: a bad row if these are not skipped, or no usable row at all.
        """
        rows = self._usable(split)
        first = next(rows, None)
        if first is None:
            files = ", ".join(map(str, self.source.splits[split]))
            raise DataError(
                f"the {split} split has no usable row",
                where=files or self.source.name,
                remedy=f"Give more rows of different texts, or a separate file for {split}",
            )
        zeros, known = [0] * self.source.sentences, _known(first[0])
        path = self.folder / f"{split}.staged"
        staged = StagedSplit(path, known, zeros[:], zeros[:], zeros[:])
        questions: dict[bytes, int] = {}  # numbers by digest, as the texts may be many
        schema = split_schema(self.source.sentences, self.labels.spec, known, staged=True)
        with pa.ipc.new_file(str(staged.path), schema) as writer:
            block: dict[str, list[Any]] = {name: [] for name in schema.names}
            words = 0
            for example, tokens, label, cut in chain([first], rows):
                _check_alike(example, known)
                columns = _columns(example, label, tokens)
                if example.question is not None:
                    key = _digest(example.question)
                    columns["question"] = questions.setdefault(key, len(questions))
                for name, value in columns.items():
                    block[name].append(value)
                words += _count(staged, tokens)
                staged.cut += cut
                staged.keys.append(text_key(example.texts))
                if len(block["label"]) >= BLOCK_ROWS or words >= _BLOCK_TOKENS:
                    writer.write_batch(pa.record_batch(block, schema=schema))
                    block, words = {name: [] for name in schema.names}, 0
                    self.progress(f"reading {split}", staged.rows, None)
            if block["label"]:
                writer.write_batch(pa.record_batch(block, schema=schema))
        self.progress(f"reading {split}", staged.rows, staged.rows)
        return staged

    def _read(self, split: str) -> Iterator[RawExample | BadRow]:
        """Rows of the source; an unreadable file of it is a `DataError`, not one of our disk."""
        try:
            yield from self.source.read(split)
        except OSError as error:
            raise DataError(
                f"cannot be read ({error.strerror or error})",
                where=str(error.filename or self.source.name),
                remedy="Check the file and its permissions",
            ) from error

    def _usable(self, split: str) -> Iterator[tuple[RawExample, list[Tokens], str | float, bool]]:
        """Each usable row, its tokens and label, and whether it was cut."""
        for item in self._read(split):
            if isinstance(item, BadRow):
                self.rejects.take(item, split)
                continue
            tokens, fault = self._tokens(item)
            # The label is checked last: that of a row that is left out must not add a class.
            label, label_fault = (None, fault) if fault else self.labels.value(item.label)
            if label is None:
                reason, remedy = label_fault
                if fault is None and item.columns:
                    reason = f"column '{item.columns[-1]}': {reason}"
                self.rejects.take(_bad(item, reason, remedy), split)
                continue
            end = self.max_words or sys.maxsize
            cut = any(len(text.words) > end for text in tokens)
            if cut:
                item, tokens = _cut(item, tokens, end)
            yield item, tokens, label, cut

    def _tokens(self, item: RawExample) -> tuple[list[Tokens], Fault | None]:
        """The tokens of a row's texts, and the row's fault, if any."""
        tokens: list[Tokens] = []
        for text in item.texts:
            if fault := length_fault(text):
                return tokens, fault
            tokens.append(self.tokenizer(text))
            kept = min(len(tokens[-1].words), self.max_words or sys.maxsize)
            if fault := length_fault(text, kept):
                return tokens, (fault[0], f"{fault[1]}, or give --max-words")
        return tokens, example_fault(item, tokens, self.source.sentences, self.labels.spec)


def _cut(example: RawExample, tokens: list[Tokens], end: int) -> tuple[RawExample, list[Tokens]]:
    """The first words of each text, with their rationale and annotations."""
    rationale, people = example.rationale, example.annotations
    shorter = replace(
        example,
        rationale=None if rationale is None else tuple(bits[:end] for bits in rationale),
        annotations=None if people is None else people[:end],
    )
    return shorter, [Tokens(text.words[:end], text.keys[:end]) for text in tokens]


def _bad(example: RawExample, reason: str, remedy: str) -> BadRow:
    content = repr({"id": example.id, "texts": example.texts, "label": example.label})
    return BadRow(example.file or example.id, example.row, reason, remedy, content)


def _columns(example: RawExample, label: str | float, tokens: list[Tokens]) -> dict[str, Any]:
    """The values of a row by column, but for the number of its question."""
    columns: dict[str, Any] = {"example_id": example.id, "label": label}
    for slot, text in enumerate(tokens):
        columns |= {f"words_{slot}": text.words, f"tokens_{slot}": text.keys}
        if example.rationale is not None:
            columns[f"rationale_{slot}"] = example.rationale[slot]
    names = ("marks", "annotations", "weight")
    known = {name: getattr(example, name) for name in names}
    return columns | {name: value for name, value in known.items() if value is not None}


def _count(staged: StagedSplit, tokens: list[Tokens]) -> int:
    """Count a row; returns its number of tokens."""
    for slot, (words, keys) in enumerate(tokens):
        staged.counts.update(keys)
        staged.tokens[slot] += len(words)
        staged.squares[slot] += len(words) ** 2
        staged.longest[slot] = max(staged.longest[slot], len(words))
    staged.rows += 1
    return sum(len(text.words) for text in tokens)


def _digest(question: str) -> bytes:
    return hashlib.blake2b(question.encode("utf-8", "surrogatepass"), digest_size=12).digest()


def _known(example: RawExample) -> tuple[Known, ...]:
    return tuple(name for name in get_args(Known) if getattr(example, name) is not None)


def _check_alike(example: RawExample, known: tuple[Known, ...]) -> None:
    for name in sorted({*_known(example)} ^ {*known}):
        raise DataError(
            f"some examples have '{name}' and some have none",
            where=f"{example.file}, row {example.row}",
            remedy="Give it to all examples of a split, or to none",
        )
