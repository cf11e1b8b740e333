"""The manifest of a prepared directory: its contents, their origin, and how they were made."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from rss_rl.data.tokens import TOKENIZER_NAME
from rss_rl.durable import as_text, file_sha256, plain_bytes
from rss_rl.errors import DataError
from rss_rl.json_files import first_fault
from rss_rl.types import LabelSpec

SCHEMA_VERSION = 8
MANIFEST_FILE = "manifest.json"
VOCABULARY_FILE = "vocabulary.json"
VECTORS_FILE = "vectors.safetensors"
SUBWORDS_FILE = "subwords.safetensors"
HELD_OUT_FILE = "held_out.safetensors"
MANIFEST_BYTES = 16 * 2**20
VOCABULARY_BYTES = 256 * 2**20
"""Larger JSON files are refused unread: parsing takes many times their size in memory."""

_AGAIN = "Prepare the data again"
_Count = Annotated[int, Field(ge=0, lt=2**53)]
_Positive = Annotated[int, Field(ge=1, lt=2**53)]
_Spread = Annotated[float, Field(ge=0, allow_inf_nan=False)]
_Sum = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
_SplitName = Annotated[str, Field(pattern="^[a-z][a-z0-9_]{0,31}$")]
Known = Literal["rationale", "marks", "question", "annotations", "weight"]
"""A part of `rss_rl.data.sources.RawExample` that either all rows of a split have or none."""


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class FileInfo(_Record):
    """Size and SHA-256 of a file."""

    bytes: _Positive
    sha256: _Sum


class ShardInfo(FileInfo):
    """One Arrow file of a split, and its examples."""

    rows: _Positive


class SplitInfo(_Record):
    """Counts of one split.

    rows          examples; texts: those whose texts differ
    known         what is known of all of them
    tokens        real tokens of each sentence slot
    longest       tokens of the longest sentence of each slot
    length_sd     standard deviation of the sentence length in each slot
    bad_rows      rows left out with --skip-bad-rows, listed in rejects.jsonl
    dropped_rows  rows the format itself says to leave out
    cut_rows      rows with a text that was cut to --max-words
    in_train      rows whose text is in the training split, too; of that split 0
    shards        the Arrow files, in the order of row numbers, see `shard_file`
    """

    rows: _Positive
    texts: _Positive
    known: tuple[Known, ...]
    tokens: tuple[_Positive, ...]
    longest: tuple[_Positive, ...]
    length_sd: tuple[_Spread, ...]
    bad_rows: _Count
    dropped_rows: _Count
    cut_rows: _Count
    in_train: _Count
    shards: tuple[ShardInfo, ...]

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


class VocabularyInfo(FileInfo):
    """Number of words, and of those (the first ids) with fine-tuned vectors; its file."""

    size: _Positive
    trainable: _Positive

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.trainable > self.size or self.bytes > VOCABULARY_BYTES:
            raise ValueError(f"{self.trainable} of {self.size} words, {self.bytes} bytes")
        return self


class Coverage(_Record):
    """Shares of word types and of tokens that have a vector, over all splits."""

    words: float
    tokens: float


class VectorInfo(FileInfo):
    """Where the vectors come from, and their file.

    dim       width, all files together
    files     files in the order of concatenation; none: all vectors are random
    widths    width of each file's part
    coverage  of each file
    any       coverage by at least one file
    missing   the most frequent words that no file has
    label_weights  columns at the end, 2 C, that are weights of labels, see
              `rss_rl.data.label_weights`
    subwords  the file of their subwords' weights, from which those of a new word are summed
    held_out  the file of what they are in training texts, see `LabelWeights.held_out`
    """

    dim: _Positive
    files: tuple[SourceFile, ...] = ()
    widths: tuple[int, ...] = ()
    coverage: tuple[Coverage, ...] = ()
    any: Coverage = Coverage(words=0.0, tokens=0.0)
    missing: tuple[str, ...] = ()
    label_weights: _Count = 0
    subwords: FileInfo | None = None
    held_out: FileInfo | None = None


class Manifest(_Record):
    """Everything about a prepared directory that is not an array.

    max_words: most words of a text; None: no limit. columns: of a table, those of the texts, then
    of the label.
    """

    schema_version: int = SCHEMA_VERSION
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
    columns: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _hangs_together(self) -> Self:
        labels = self.labels
        if labels.kind == "classes" and not labels.names:
            raise ValueError("there is no class")
        if twice := [name for name, count in Counter(labels.names).items() if count > 1]:
            raise ValueError(f"two classes are called '{twice[0]:.40}'")
        if self.tokenizer.name != TOKENIZER_NAME:
            raise ValueError(f"there is no tokenizer '{self.tokenizer.name:.40}'")
        if not math.isfinite(labels.low) or not labels.low <= labels.high < math.inf:
            raise ValueError(f"not a range of scores: {labels.low} to {labels.high}")
        for split, info in self.splits.items():
            if any(len(x) != self.sentences for x in (info.tokens, info.longest, info.length_sd)):
                raise ValueError(f"'{split}' does not have {self.sentences} sentence slot(s)")
            if ("marks" in info.known) != labels.chooses:
                raise ValueError(f"'{split}' has marks, or lacks them, contrary to its labels")
        return self

    def files(self) -> dict[str, FileInfo]:
        """Every file beside the manifest, by name."""
        files = self.word_files()
        for split, info in self.splits.items():
            files |= {shard_file(split, n): shard for n, shard in enumerate(info.shards)}
        return files

    def word_files(self) -> dict[str, FileInfo]:
        """Those that a model of the data needs: of words, not of texts."""
        files: dict[str, FileInfo] = {VOCABULARY_FILE: self.vocabulary, VECTORS_FILE: self.vectors}
        if self.vectors.subwords is not None:
            files[SUBWORDS_FILE] = self.vectors.subwords
        if self.vectors.held_out is not None:
            files[HELD_OUT_FILE] = self.vectors.held_out
        return files

    def digest(self) -> str:
        """The SHA-256 of the manifest, which holds the sizes and sums of all files."""
        return hashlib.sha256(self.model_dump_json().encode()).hexdigest()

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
            content = plain_bytes(path, MANIFEST_BYTES)
        except (OSError, ValueError) as error:
            raise DataError(
                f"is no prepared directory: {MANIFEST_FILE} cannot be read ({error})",
                where=str(folder),
                remedy="Make one with `rss-rl data prepare ... --out DIR`",
            ) from error
        return cls.parse(content, str(path))

    @classmethod
    def parse(cls, content: bytes, where: str) -> Manifest:
        """The manifest in `content`, read at `where`.

        Raises:
            DataError: it is damaged or of another schema version.
        """
        try:
            version = _Version.model_validate_json(content).schema_version
            if version == SCHEMA_VERSION:
                return cls.model_validate_json(content)
            fault = f"has schema version {version}, this program reads {SCHEMA_VERSION}"
        except ValidationError as error:
            fault = f"is damaged or of another version ({first_fault(error)})"
        raise DataError(fault, where=where, remedy=_AGAIN)


class _Version(BaseModel):
    """The only key that all versions have."""

    schema_version: int


def shard_file(split: str, number: int) -> str:
    """Name of an Arrow file of a split; shards are numbered from 0."""
    return f"{split}-{number:05d}.arrow"


def file_info(path: Path) -> dict[str, Any]:
    """Fields of a `FileInfo`."""
    return {"bytes": path.stat().st_size, "sha256": file_sha256(path)}
