"""First pass: a split is streamed, tokenised, checked and counted into a temporary Arrow file.

Only one record batch is held in memory at a time, and the word counts.
"""

from __future__ import annotations

import hashlib
import heapq
import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa

from rss_rl.data.checks import LabelChecker, Rejects, example_fault
from rss_rl.data.shard import known_fields
from rss_rl.data.sources import BadRow, RawExample, Source
from rss_rl.data.tokens import Tokenizer, Tokens
from rss_rl.errors import DataError
from rss_rl.types import LabelSpec

Progress = Callable[[str, int, int | None], None]
"""Called with the activity, how far it is, and its end (None: unknown)."""

BLOCK_ROWS = 1024
_LONGEST_TEXTS = 3
_BLOCK_TOKENS = 1 << 18
"""A record batch also ends after this many tokens, so that long documents do not make it large."""
_KNOWN = {
    "rationale": ("rationale", "a rationale"),
    "marks": ("marks", "marks"),
    "questions": ("question", "a question"),
    "annotations": ("annotations", "a map of each annotator"),
}
"""For each of `rss_rl.data.manifest.KNOWN`, the attribute of a row, and its name in messages."""


@dataclass
class StagedSplit:
    """Results of the first pass over a split; `path` is the temporary Arrow file.

    tokens, longest and squares are sums, maxima and sums of squares of the lengths in a slot.
    cut and too_long count rows; longest_texts is a heap of (words, minus index, id) before cuts.
    known says which of `rss_rl.data.manifest.KNOWN` its first row has.
    """

    path: Path
    rows: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    tokens: list[int] = field(default_factory=list)
    longest: list[int] = field(default_factory=list)
    squares: list[int] = field(default_factory=list)
    cut: int = 0
    too_long: int = 0
    longest_texts: list[tuple[int, int, str]] = field(default_factory=list)
    known: frozenset[str] = frozenset()
    _met: int = 0

    def met(self, example: RawExample, tokens: list[Tokens]) -> None:
        """Update the longest texts."""
        self._met += 1
        words = max(len(text.words) for text in tokens)
        heapq.heappush(self.longest_texts, (words, -self._met, example.id))
        if len(self.longest_texts) > _LONGEST_TEXTS:
            heapq.heappop(self.longest_texts)

    def length_sd(self) -> tuple[float, ...]:
        """Standard deviation of the sentence length in each slot."""
        return tuple(
            math.sqrt(self.rows * squares - tokens**2) / self.rows
            for tokens, squares in zip(self.tokens, self.squares, strict=True)
        )


def _digest(question: str) -> bytes:
    return hashlib.blake2b(question.encode("utf-8", "surrogatepass"), digest_size=12).digest()


def _schema(sentences: int, labels: LabelSpec, known: frozenset[str]) -> Any:
    kind = pa.float64() if labels.kind == "score" else pa.string()
    fields = [("example_id", pa.string()), ("label", pa.int32() if labels.chooses else kind)]
    for slot in range(sentences):
        fields += [(f"{what}_{slot}", pa.list_(pa.string())) for what in ("words", "keys")]
    return pa.schema(fields + known_fields(sentences, known))


TooLong = Literal["cut", "leave-out"]


@dataclass(frozen=True)
class Limit:
    """The most words of a text (None: any number), and what to do with longer ones."""

    words: int | None = None
    too_long: TooLong = "cut"

    def check(self, labels: LabelSpec | None) -> None:
        """Check that the limit is valid for these labels.

        Raises:
            DataError: it is below 1, or would cut texts that labels choose a part of.
        """
        if self.words is not None and self.words < 1:
            raise DataError(f"max_words is {self.words}", remedy="Give 1 or more as --max-words")
        if self.words and self.too_long == "cut" and labels is not None and labels.chooses:
            raise DataError(
                f"labels choose a {labels.kind} of the text, which a cut may remove",
                where="--max-words",
                remedy="Leave long texts out: --too-long leave-out",
            )

    def is_passed(self, tokens: list[Tokens]) -> bool:
        """Whether a text exceeds the limit."""
        return self.words is not None and any(len(text.words) > self.words for text in tokens)

    def cut(self, example: RawExample, tokens: list[Tokens]) -> tuple[RawExample, list[Tokens]]:
        """The first words of each text, with their rationale and annotations."""
        end = self.words
        rationale, people = example.rationale, example.annotations
        shorter = replace(
            example,
            rationale=None if rationale is None else tuple(bits[:end] for bits in rationale),
            annotations=None if people is None else people[:end],
        )
        return shorter, [Tokens(text.words[:end], text.keys[:end]) for text in tokens]


@dataclass(frozen=True)
class Stage:
    """The first pass of a preparation: its source, checks, settings and target folder."""

    source: Source
    folder: Path
    tokenizer: Tokenizer
    labels: LabelChecker
    rejects: Rejects
    progress: Progress
    block_rows: int
    limit: Limit

    def run(self, split: str) -> StagedSplit:
        """Stream one split into a temporary file and count its words.

        Raises:
            DataError: a bad row if these are not skipped, or no usable row at all.
        """
        slots, path = self.source.sentences, self.folder / f"{split}.staged"
        staged = StagedSplit(path, tokens=[0] * slots, longest=[0] * slots, squares=[0] * slots)
        rows = self._usable(split, staged)
        first = next(rows, None)
        if first is None:
            files = ", ".join(str(file) for file in self.source.splits[split])
            long = f", and {staged.too_long} are too long" if staged.too_long else ""
            raise DataError(
                f"the {split} split has no usable row{long}",
                where=files or self.source.name,
                remedy=f"Give more rows, or a separate file for {split}",
            )
        staged.known = _known(first[0])
        questions: dict[bytes, int] = {}  # numbers by digest, as the texts may be many
        schema = _schema(slots, self.labels.spec, staged.known)
        with pa.ipc.new_file(str(path), schema) as writer:
            block, words = _empty(schema), 0
            for example, label, tokens in chain([first], rows):
                _check_alike(example, staged)
                if example.question is not None:
                    number = questions.setdefault(_digest(example.question), len(questions))
                    block["question"].append(number)
                words += _add(block, staged, example, label, tokens)
                if len(block["label"]) >= self.block_rows or words >= _BLOCK_TOKENS:
                    writer.write_batch(pa.record_batch(block, schema=schema))
                    block, words = _empty(schema), 0
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

    def _usable(
        self, split: str, staged: StagedSplit
    ) -> Iterator[tuple[RawExample, str | float, list[Tokens]]]:
        for item in self._read(split):
            if isinstance(item, BadRow):
                self.rejects.take(item, split)
                continue
            tokens = [self.tokenizer(text) for text in item.texts]
            fault = example_fault(item, tokens, self.source.sentences, self.labels.spec)
            long = fault is None and self.limit.is_passed(tokens)
            if fault is None:
                staged.met(item, tokens)
            if long and self.limit.too_long == "leave-out":
                staged.too_long += 1
                continue
            # The label is checked last: that of a row that is left out must not add a class.
            label, label_fault = (None, fault) if fault else self.labels.value(item.label)
            if label is None:
                reason, remedy = label_fault
                if fault is None and item.columns:
                    reason = f"column '{item.columns[-1]}': {reason}"
                self.rejects.take(_bad(item, reason, remedy), split)
                continue
            if long:
                staged.cut += 1
                item, tokens = self.limit.cut(item, tokens)
            yield item, label, tokens


def _bad(example: RawExample, reason: str, remedy: str) -> BadRow:
    content = repr({"id": example.id, "texts": example.texts, "label": example.label})
    return BadRow(example.file or example.id, example.row, reason, remedy, content)


def _empty(schema: Any) -> dict[str, list[Any]]:
    """Columns of the next record batch."""
    return {name: [] for name in schema.names}


def _add(
    columns: dict[str, list[Any]],
    staged: StagedSplit,
    example: RawExample,
    label: str | float,
    tokens: list[Tokens],
) -> int:
    """Add a row to the columns and counts; returns its number of tokens."""
    columns["example_id"].append(example.id)
    columns["label"].append(label)
    if example.marks is not None:
        columns["marks"].append(example.marks)
    if example.annotations is not None:
        columns["annotations"].append(example.annotations)
    for slot, (words, keys) in enumerate(tokens):
        columns[f"words_{slot}"].append(words)
        columns[f"keys_{slot}"].append(keys)
        if example.rationale is not None:
            columns[f"rationale_{slot}"].append(example.rationale[slot])
        staged.counts.update(keys)
        staged.tokens[slot] += len(words)
        staged.squares[slot] += len(words) ** 2
        staged.longest[slot] = max(staged.longest[slot], len(words))
    staged.rows += 1
    return sum(len(words) for words, _ in tokens)


def _known(example: RawExample) -> frozenset[str]:
    return frozenset(n for n, (field, _) in _KNOWN.items() if getattr(example, field) is not None)


def _check_alike(example: RawExample, staged: StagedSplit) -> None:
    for name in sorted(_known(example) ^ staged.known):
        raise DataError(
            f"some examples have {_KNOWN[name][1]} and some have none",
            where=f"{example.file}, row {example.row}",
            remedy="Give one to all examples of a split, or to none",
        )


def staged_blocks(staged: StagedSplit) -> Iterator[Any]:
    """The record batches of a staged split, one by one."""
    with pa.memory_map(str(staged.path)) as file:
        reader = pa.ipc.open_file(file)
        for i in range(reader.num_record_batches):
            yield reader.get_batch(i)
