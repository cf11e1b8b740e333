"""The manifest of a prepared directory: what is in it, where it came from, how it was made."""

from __future__ import annotations

__all__ = [
    "MANIFEST_FILE",
    "SCHEMA_VERSION",
    "VECTORS_FILE",
    "VOCABULARY_FILE",
    "Coverage",
    "Manifest",
    "SourceFile",
    "SplitInfo",
    "TokenizerInfo",
    "VectorInfo",
    "VocabularyInfo",
    "split_file",
]

from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from rss_rl.errors import DataError
from rss_rl.types import LabelSpec

SCHEMA_VERSION = 1
MANIFEST_FILE = "manifest.json"
VOCABULARY_FILE = "vocabulary.json"
VECTORS_FILE = "vectors.safetensors"


def split_file(split: str) -> str:
    """Name of the Arrow file of a split."""
    return f"{split}.arrow"


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class SplitInfo(_Record):
    """Counts of one split.

    rows          examples
    rationale     whether the tokens that the label follows from are known
    tokens        real tokens of each sentence slot
    longest       tokens of the longest sentence of each slot
    bad_rows      rows left out with --skip-bad-rows, listed in rejects.jsonl
    dropped_rows  rows the format itself says to leave out
    bytes         size of the Arrow file
    """

    rows: int
    rationale: bool
    tokens: tuple[int, ...]
    longest: tuple[int, ...]
    bad_rows: int
    dropped_rows: int
    bytes: int


class SourceFile(_Record):
    """A file that was read, by name and SHA-256."""

    name: str
    sha256: str


class TokenizerInfo(_Record):
    """How texts became words; `lower`: the vocabulary does not tell upper from lower case."""

    name: str
    lower: bool


class VocabularyInfo(_Record):
    """Number of words, and of those (the first ids) whose vectors are fine-tuned."""

    size: int
    trainable: int


class Coverage(_Record):
    """Shares of the different words and of the running tokens that have a vector, all splits."""

    words: float
    tokens: float


class VectorInfo(_Record):
    """Where the vectors come from.

    dim       width, all files together
    files     files in the order of concatenation; none: all vectors are random
    widths    width of each file's part
    scales    what each file's vectors were multiplied by, to the spread of the first file's
    coverage  of each file
    any       coverage by at least one file
    missing   the commonest words that no file has
    bad_lines lines of vector files left out with --skip-bad-rows
    """

    dim: int
    files: tuple[SourceFile, ...] = ()
    widths: tuple[int, ...] = ()
    scales: tuple[float, ...] = ()
    coverage: tuple[Coverage, ...] = ()
    any: Coverage = Coverage(words=0.0, tokens=0.0)
    missing: tuple[str, ...] = ()
    bad_lines: int = 0


class Manifest(_Record):
    """Everything about a prepared directory that is not an array."""

    schema_version: int
    name: str
    labels: LabelSpec
    sentences: int
    splits: dict[str, SplitInfo]
    sources: tuple[SourceFile, ...]
    tokenizer: TokenizerInfo
    vocabulary: VocabularyInfo
    vectors: VectorInfo
    seed: int

    def save(self, folder: Path) -> None:
        """Write manifest.json into `folder`."""
        (folder / MANIFEST_FILE).write_text(self.model_dump_json(indent=2) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, folder: Path) -> Manifest:
        """Read manifest.json of `folder`.

        Raises:
            DataError: there is none, or it is damaged or of another schema version.
        """
        path = folder / MANIFEST_FILE
        try:
            text = path.read_text(encoding="utf-8")
        except OSError as error:
            raise DataError(
                "is no prepared directory",
                where=str(folder),
                remedy="Make one with `rss-rl data prepare ... --out DIR`",
            ) from error
        try:
            manifest = cls.model_validate_json(text)
        except ValidationError as error:
            first = error.errors()[0]
            key = ".".join(str(part) for part in first["loc"])
            raise DataError(
                f"is damaged or of another version ({key}: {first['msg']})",
                where=str(path),
                remedy="Prepare the data again",
            ) from error
        if manifest.schema_version != SCHEMA_VERSION:
            raise DataError(
                f"has schema version {manifest.schema_version}, this program reads "
                f"{SCHEMA_VERSION}",
                where=str(path),
                remedy="Prepare the data again",
            )
        return manifest
