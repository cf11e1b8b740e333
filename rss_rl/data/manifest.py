"""The manifest of a prepared directory: its contents, their origin, and how they were made."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from rss_rl.durable import as_text, check_file
from rss_rl.errors import DataError
from rss_rl.json_files import first_fault
from rss_rl.types import LabelSpec

SCHEMA_VERSION = 2
MANIFEST_FILE = "manifest.json"
VOCABULARY_FILE = "vocabulary.json"
VECTORS_FILE = "vectors.safetensors"
KNOWN = ("rationale", "marks", "questions", "annotations")
"""Optional columns, which either all rows of a split have or none, see `SplitInfo`."""
MANIFEST_BYTES = 16 * 2**20
VOCABULARY_BYTES = 256 * 2**20
"""Larger JSON files are refused unread: parsing takes many times their size in memory."""

_AGAIN = "Prepare the data again"
_Count = Annotated[int, Field(ge=0, lt=2**53)]
_Positive = Annotated[int, Field(ge=1, lt=2**53)]
_Spread = Annotated[float, Field(ge=0, allow_inf_nan=False)]
_Sum = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
_SplitName = Annotated[str, Field(pattern="^[a-z][a-z0-9_]{0,31}$")]


def shard_file(split: str, number: int) -> str:
    """Name of an Arrow file of a split; shards are numbered from 0."""
    return f"{split}-{number:05d}.arrow"


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ShardInfo(_Record):
    """One Arrow file of a split: its name, examples, size and SHA-256."""

    name: str
    rows: _Positive
    bytes: _Positive
    sha256: _Sum


class LongText(_Record):
    """A long text: the id of its example, and its number of words before it was cut."""

    id: str
    words: _Positive


class SplitInfo(_Record):
    """Counts of one split.

    rows          examples
    rationale     whether the tokens that the label follows from are known
    marks         whether the tokens of the first slot are marked with what the label chooses from
    questions     whether examples are rival answers to numbered questions
    annotations   whether it is known which annotator marked which tokens of the first slot
    tokens        real tokens of each sentence slot
    longest       tokens of the longest sentence of each slot
    bad_rows      rows left out with --skip-bad-rows, listed in rejects.jsonl
    dropped_rows  rows the format itself says to leave out
    cut_rows      rows with a text that was cut to --max-words
    long_rows     rows left out because a text is longer than --max-words
    longest_texts the longest texts, longest first
    shards        the Arrow files, in the order of row numbers
    length_sd     standard deviation of the sentence length in each slot
    """

    rows: _Positive
    rationale: bool
    marks: bool
    questions: bool
    annotations: bool
    tokens: tuple[_Positive, ...]
    longest: tuple[_Positive, ...]
    bad_rows: _Count
    dropped_rows: _Count
    cut_rows: _Count
    long_rows: _Count
    longest_texts: tuple[LongText, ...]
    shards: tuple[ShardInfo, ...]
    length_sd: tuple[_Spread, ...]

    @property
    def known(self) -> list[str]:
        """The items of KNOWN that its rows have."""
        return [name for name in KNOWN if getattr(self, name)]

    @model_validator(mode="after")
    def _adds_up(self) -> Self:
        if sum(shard.rows for shard in self.shards) != self.rows:
            raise ValueError(f"the shards do not hold {self.rows} rows together")
        return self


class SourceFile(_Record):
    """A file that was read, by name and SHA-256.

    A folder of subword vectors is named `static:NAME`, and of an encoder `encoder:NAME`, without
    its path on this machine.
    """

    name: Annotated[str, AfterValidator(as_text)]
    sha256: str


class TokenizerInfo(_Record):
    """The tokenizer of the texts; `lower`: the vocabulary is uncased."""

    name: str
    lower: bool


class VocabularyInfo(_Record):
    """Number of words, and of those (the first ids) with fine-tuned vectors; file size, SHA-256."""

    size: _Positive
    trainable: _Positive
    bytes: Annotated[int, Field(ge=1, le=VOCABULARY_BYTES)]
    sha256: _Sum

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.trainable > self.size:
            raise ValueError(f"{self.trainable} of {self.size} words are trainable")
        return self


class Coverage(_Record):
    """Shares of word types and of tokens that have a vector, over all splits."""

    words: float
    tokens: float


class VectorInfo(_Record):
    """Where the vectors come from.

    dim       width, all files together
    files     files in the order of concatenation; none: all vectors are random
    widths    width of each file's part
    scales    factor of each file's vectors, which gives them the spread of the first file's
    coverage  of each file
    any       coverage by at least one file
    missing   the most frequent words that no file has
    bad_lines lines of vector files left out with --skip-bad-rows
    label_weights columns at the end that are weights of labels, see `rss_rl.data.label_weights`
    bytes     size of the file they are in
    sha256    of that file
    """

    dim: _Positive
    bytes: _Positive
    sha256: _Sum
    files: tuple[SourceFile, ...] = ()
    widths: tuple[int, ...] = ()
    scales: tuple[float, ...] = ()
    coverage: tuple[Coverage, ...] = ()
    any: Coverage = Coverage(words=0.0, tokens=0.0)
    missing: tuple[str, ...] = ()
    bad_lines: _Count = 0
    label_weights: _Count = 0


class Manifest(_Record):
    """Everything about a prepared directory that is not an array.

    max_words: most words of a text; None: no limit.
    """

    schema_version: int
    name: str
    labels: LabelSpec
    sentences: Annotated[int, Field(ge=1, le=2)]
    splits: dict[_SplitName, SplitInfo]
    sources: tuple[SourceFile, ...]
    tokenizer: TokenizerInfo
    vocabulary: VocabularyInfo
    vectors: VectorInfo
    seed: int
    max_words: _Positive | None = None

    @model_validator(mode="after")
    def _hangs_together(self) -> Self:
        labels = self.labels
        if labels.kind == "classes" and not labels.names:
            raise ValueError("there is no class")
        if not math.isfinite(labels.low) or not labels.low <= labels.high < math.inf:
            raise ValueError(f"not a range of scores: {labels.low} to {labels.high}")
        for split, info in self.splits.items():
            names = [shard_file(split, number) for number in range(len(info.shards))]
            if [shard.name for shard in info.shards] != names:
                raise ValueError(f"the shards of '{split}' must be named {names[0]} and so on")
            sizes = (info.tokens, info.longest, info.length_sd)
            if any(len(each) != self.sentences for each in sizes):
                raise ValueError(f"'{split}' does not have {self.sentences} sentence slot(s)")
            if info.marks != labels.chooses:
                raise ValueError(f"'{split}' has marks, or lacks them, contrary to its labels")
        return self

    def save(self, folder: Path) -> None:
        """Write manifest.json into `folder`."""
        (folder / MANIFEST_FILE).write_text(self.model_dump_json(indent=2) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, folder: Path) -> Manifest:
        """Read manifest.json of `folder`.

        Raises:
            DataError: there is none, or it is damaged, too large or of another schema version.
        """
        path = folder / MANIFEST_FILE
        try:
            check_file(path)
            with path.open("rb") as stream:
                content = stream.read(MANIFEST_BYTES + 1)
        except OSError as error:
            if isinstance(error, FileNotFoundError) and (folder / VOCABULARY_FILE).exists():
                raise DataError(
                    "is missing", where=str(path), remedy=f"Copy it back. {_AGAIN} if it is lost"
                ) from error
            raise DataError(
                "is no prepared directory",
                where=str(folder),
                remedy="Make one with `rss-rl data prepare ... --out DIR`",
            ) from error
        return cls.parse(content, str(path))

    @classmethod
    def parse(cls, content: bytes, where: str) -> Manifest:
        """The manifest in `content`, read at `where`.

        Raises:
            DataError: it is damaged, too large or of another schema version.
        """
        if len(content) > MANIFEST_BYTES:
            raise DataError(f"has more than {MANIFEST_BYTES} bytes", where=where, remedy=_AGAIN)
        try:
            version = _Version.model_validate_json(content).schema_version
            if version != SCHEMA_VERSION:
                raise DataError(
                    f"has schema version {version}, this program reads {SCHEMA_VERSION}",
                    where=where,
                    remedy=_AGAIN,
                )
            return cls.model_validate_json(content)
        except ValidationError as error:
            raise DataError(
                f"is damaged or of another version ({first_fault(error)})",
                where=where,
                remedy=_AGAIN,
            ) from error


class _Version(BaseModel):
    """The only key that all versions have."""

    schema_version: int
