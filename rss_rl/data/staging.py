"""First pass: a split, streamed, tokenised, checked and counted, into a temporary Arrow file.

Rows are held for one record batch at a time, so memory does not grow with the corpus (the counts
grow with its vocabulary).
"""

from __future__ import annotations

__all__ = ["BLOCK_ROWS", "Progress", "Stage", "StagedSplit", "staged_blocks"]

import hashlib
import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa

from rss_rl.data.checks import LabelChecker, Rejects, example_fault
from rss_rl.data.sources import BadRow, RawExample, Source
from rss_rl.data.tokens import Tokenizer, Tokens
from rss_rl.errors import DataError
from rss_rl.types import LabelSpec

Progress = Callable[[str, int, int | None], None]
"""Called with what is being done, how far it is, and the end where that is known."""

BLOCK_ROWS = 1024
_BLOCK_TOKENS = 1 << 18
"""A record batch ends after so many tokens, too: long documents must not make it large."""


@dataclass
class StagedSplit:
    """What the first pass found in a split; `path` is the temporary Arrow file.

    tokens, longest and squares are sums, maxima and sums of squares of the lengths in a slot.
    """

    path: Path
    rows: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    tokens: list[int] = field(default_factory=list)
    longest: list[int] = field(default_factory=list)
    squares: list[int] = field(default_factory=list)
    rationale: bool = False
    marks: bool = False
    questions: bool = False
    annotations: bool = False

    def length_sd(self) -> tuple[float, ...]:
        """Standard deviation of the tokens of a sentence, of each slot."""
        return tuple(
            math.sqrt(self.rows * squares - tokens**2) / self.rows
            for tokens, squares in zip(self.tokens, self.squares, strict=True)
        )


@dataclass
class _Block:
    """Rows gathered for one record batch: the columns as lists."""

    columns: dict[str, list[Any]]
    rows: int = 0
    tokens: int = 0

    @classmethod
    def empty(cls, schema: Any) -> _Block:
        return cls({name: [] for name in schema.names})


class _Questions:
    """Numbers questions as they come; what is held is a digest of each, not its text."""

    def __init__(self) -> None:
        self._numbers: dict[int, int] = {}

    def number(self, question: str) -> int:
        text = question.encode("utf-8", "surrogatepass")
        digest = int.from_bytes(hashlib.blake2b(text, digest_size=12).digest(), "little")
        return self._numbers.setdefault(digest, len(self._numbers))


def _schema(sentences: int, labels: LabelSpec, staged: StagedSplit) -> Any:
    kind = pa.float64() if labels.kind == "score" else pa.string()
    fields = [("example_id", pa.string()), ("label", pa.int32() if labels.chooses else kind)]
    if staged.marks:
        fields.append(("marks", pa.list_(pa.int32())))
    if staged.questions:
        fields.append(("question", pa.int64()))
    if staged.annotations:
        fields.append(("annotations", pa.list_(pa.int32())))
    rationale = staged.rationale
    for slot in range(sentences):
        fields.append((f"words_{slot}", pa.list_(pa.string())))
        fields.append((f"keys_{slot}", pa.list_(pa.string())))
        if rationale:
            fields.append((f"rationale_{slot}", pa.list_(pa.bool_())))
    return pa.schema(fields)


@dataclass(frozen=True)
class Stage:
    """The first pass: what it reads from, checks with and reports to."""

    source: Source
    tokenizer: Tokenizer
    labels: LabelChecker
    rejects: Rejects
    progress: Progress
    block_rows: int = BLOCK_ROWS

    def run(self, split: str, path: Path) -> StagedSplit:
        """Stream one split into `path` and count its words.

        Raises:
            DataError: a bad row where they are not skipped, or no usable row at all.
        """
        slots = self.source.sentences
        staged = StagedSplit(path, tokens=[0] * slots, longest=[0] * slots, squares=[0] * slots)
        rows = self._usable(split)
        first = next(rows, None)
        if first is None:
            files = ", ".join(str(file) for file in self.source.splits()[split])
            raise DataError(f"the {split} split has no usable row", where=files or self.source.name)
        staged.rationale = first[0].rationale is not None
        staged.marks = first[0].marks is not None
        staged.questions = first[0].question is not None
        staged.annotations = first[0].annotations is not None
        questions = _Questions()
        schema = _schema(slots, self.labels.spec, staged)
        with pa.ipc.new_file(str(path), schema) as writer:
            block = _Block.empty(schema)
            for example, label, tokens in chain([first], rows):
                _check_alike(example, staged)
                if example.question is not None:
                    block.columns["question"].append(questions.number(example.question))
                _add(block, staged, example, label, tokens)
                if block.rows >= self.block_rows or block.tokens >= _BLOCK_TOKENS:
                    writer.write_batch(pa.record_batch(block.columns, schema=schema))
                    block = _Block.empty(schema)
                    self.progress(f"reading {split}", staged.rows, None)
            if block.rows:
                writer.write_batch(pa.record_batch(block.columns, schema=schema))
        self.progress(f"reading {split}", staged.rows, staged.rows)
        return staged

    def _read(self, split: str) -> Iterator[RawExample | BadRow]:
        """What the source yields; a file of it that cannot be read is no fault of our disk."""
        try:
            yield from self.source.read(split)
        except OSError as error:
            raise DataError(
                f"cannot be read ({error.strerror or error})",
                where=str(error.filename or self.source.name),
                remedy="Check the file and who may read it",
            ) from error

    def _usable(self, split: str) -> Iterator[tuple[RawExample, str | float, list[Tokens]]]:
        for item in self._read(split):
            if isinstance(item, BadRow):
                self.rejects.take(item, split)
                continue
            tokens = [self.tokenizer(text) for text in item.texts]
            fault = example_fault(item, tokens, self.source.sentences, self.labels.spec)
            # A label is looked at last: one of a row that is left out names no class.
            label, label_fault = (None, fault) if fault else self.labels.value(item.label)
            if label is None:
                self.rejects.take(_bad(item, *label_fault), split)
            else:
                yield item, label, tokens


def _bad(example: RawExample, reason: str, remedy: str) -> BadRow:
    content = repr({"id": example.id, "texts": example.texts, "label": example.label})
    return BadRow(example.file or example.id, example.row, reason, remedy, content)


def _add(
    block: _Block,
    staged: StagedSplit,
    example: RawExample,
    label: str | float,
    tokens: list[Tokens],
) -> None:
    columns = block.columns
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
        block.tokens += len(words)
    block.rows += 1
    staged.rows += 1


def _check_alike(example: RawExample, staged: StagedSplit) -> None:
    for what, has, all_have in (
        ("rationale", example.rationale is not None, staged.rationale),
        ("question", example.question is not None, staged.questions),
        ("map of each annotator", example.annotations is not None, staged.annotations),
    ):
        if has != all_have:
            raise DataError(
                f"some examples have a {what} and some have none",
                where=f"{example.file}, row {example.row}",
                remedy="Give one to all examples of a split, or to none",
            )


def staged_blocks(staged: StagedSplit) -> Iterator[Any]:
    """The record batches of a staged split, one by one."""
    with pa.memory_map(str(staged.path)) as file:
        reader = pa.ipc.open_file(file)
        for i in range(reader.num_record_batches):
            yield reader.get_batch(i)
