"""ERASER's film reviews, negative or positive, and the evidence that people marked.

A line of a split's file is a row: `annotation_id`, `classification` and `evidences`, groups of
spans of the tokens of a document. Documents are files in the folder `docs`; their tokens are
separated by spaces and line ends. The rationale is the tokens that any span covers. Spans without
tokens and text, of which the test rows have a few, are ignored.

The marks of train and val suffice to tell the label, those of test are meant to be complete (31% of
the tokens there, 9% in training).

Source: DeYoung et al., ERASER: A Benchmark to Evaluate Rationalized NLP Models, ACL 2020.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from rss_rl.data.sources import Row, SourceComponent, Words, read_folder
from rss_rl.data.tables import Record, RowModel, examples, read_records
from rss_rl.types import LabelSpec

_DOCUMENTS, _UNPACKED = "docs", "movies"
_FILES = {
    "train": ("train.jsonl", _DOCUMENTS),
    "dev": ("val.jsonl", _DOCUMENTS),
    "test": ("test.jsonl", _DOCUMENTS),
}
_CLASSES = {"NEG": "negative", "POS": "positive"}
_ALIKE = "Take the documents and the .jsonl files out of one archive"


def _read(split: str, path: Path, documents: Path) -> Iterator[Row]:
    """Stream one split."""
    return examples(read_records(path), partial(_example, documents=documents))


class _Span(RowModel):
    """Marked tokens of a document."""

    docid: str
    start_token: int
    end_token: int
    text: Any = None


class _Row(RowModel):
    annotation_id: str
    classification: str
    evidences: list[list[_Span]]


def _example(record: Record, documents: Path) -> Row:
    row = _Row.model_validate(record.values)
    spans = [span for group in row.evidences for span in group]
    names = {span.docid for span in spans} or {row.annotation_id}
    name = min(names)
    if len(names) > 1 or Path(name).name != name:
        reason = f"its spans lie in {', '.join(sorted(names))}, which is not the name of one file"
        return record.bad(reason, _ALIKE)
    try:
        words = _tokens((documents / name).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        return record.bad(f"its document cannot be read ({error})", _ALIKE)
    bits = [False] * len(words)
    for span in spans:
        start, end = span.start_token, span.end_token
        if start == end and not span.text:
            continue
        if not 0 <= start < end <= len(words):
            reason = f"tokens {start} to {end} lie outside the {len(words)} tokens of '{name}'"
            return record.bad(reason, _ALIKE)
        if isinstance(span.text, str) and _tokens(span.text) != words[start:end]:
            return record.bad(f"tokens {start} to {end} of '{name}' are not its text", _ALIKE)
        bits[start:end] = [True] * (end - start)
    return record.example(
        row.annotation_id,
        (Words(words),),
        _CLASSES.get(row.classification, row.classification),
        rationale=(tuple(bits),),
    )


def _tokens(text: str) -> Sequence[str]:
    """The tokens of a text, separated by spaces and line ends and no other white space."""
    return [token for token in text.replace("\n", " ").split(" ") if token]


_LABELS = LabelSpec("classes", names=tuple(_CLASSES.values()))
ERASER_MOVIES = SourceComponent(
    name="eraser-movies",
    help="ERASER's film reviews, negative / positive, with the phrases that people marked",
    build=read_folder(1, _LABELS, _FILES, _read, name="eraser-movies", inner=_UNPACKED),
    capabilities=frozenset({"rationales"}),
    needs=f"--from FOLDER with train.jsonl, val.jsonl, test.jsonl and {_DOCUMENTS}",
    source="DeYoung et al., ACL 2020",
)
