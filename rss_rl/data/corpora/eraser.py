"""ERASER's movies: film reviews, negative or positive, with the phrases that people marked.

A line of a split's file is a review: `annotation_id`, `classification` and `evidences`, groups of
spans of the tokens of one document, `docs/<docid>`, which white space parts. A token is of the
rationale where any span covers it. The marks of train and val are enough to tell the label by,
those of test are meant to be all that there are (31% of the tokens there, 9% in training). Spans
of no token and no text, which test has a few of, say nothing and are passed over; a review without
a span has an empty rationale.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rss_rl.components import NoOptions
from rss_rl.data.corpora.folders import source_folder
from rss_rl.data.records import Record, read_records
from rss_rl.data.sources import (
    BadRow,
    RawExample,
    ReaderSource,
    SourceComponent,
    SourceRequest,
    Words,
)
from rss_rl.errors import DataError
from rss_rl.types import LabelSpec

_FILES = {"train": "train.jsonl", "dev": "val.jsonl", "test": "test.jsonl"}
_DOCUMENTS = "docs"
_UNPACKED = "movies"
"""Folder that the published archive unpacks into."""
_CLASSES = {"NEG": "negative", "POS": "positive"}
_ALIKE = "Take docs and the .jsonl files out of one archive"


class _UnusableError(Exception):
    """Why a row cannot be used, and what to do."""


def _read(split: str, path: Path, documents: Path) -> Iterator[RawExample | BadRow]:
    """Stream one split.

    Raises:
        DataError: the folder lacks the split's file or the documents.
    """
    for needed in (path, documents):
        if not needed.exists():
            raise DataError(
                f"there is no {needed.name}",
                where=str(path.parent),
                remedy="Unpack ERASER's movies there, or name another --from",
            )
    for record in read_records(path):
        yield record if isinstance(record, BadRow) else _example(record, documents)


def _example(record: Record, documents: Path) -> RawExample | BadRow:
    values = record.values
    try:
        spans = _spans(values)
        document = _document(values, spans)
        words = _words(documents, document)
        bits = _bits(spans, words, document)
    except _UnusableError as error:
        return record.bad(*error.args)
    label = str(values.get("classification", ""))
    return RawExample(
        id=str(values.get("annotation_id", document)),
        texts=(Words(words),),
        label=_CLASSES.get(label, label),
        rationale=(tuple(bits),),
        file=record.file,
        row=record.row,
    )


def _spans(values: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """All spans of all groups, in the order of the document."""
    groups = values.get("evidences")
    if not isinstance(groups, list) or not all(isinstance(group, list) for group in groups):
        raise _UnusableError("'evidences' is no list of lists of spans", _ALIKE)
    spans = [span for group in groups for span in group]
    for span in spans:
        ends = [span.get(f"{end}_token") for end in ("start", "end")] if _is_span(span) else [""]
        if not all(type(end) is int for end in ends):
            raise _UnusableError(
                f"the span {span!r} lacks docid, start_token or end_token as numbers of tokens",
                _ALIKE,
            )
    return sorted(spans, key=lambda span: (span["start_token"], span["end_token"]))


def _is_span(span: Any) -> bool:
    return isinstance(span, dict) and isinstance(span.get("docid"), str)


def _document(values: Mapping[str, Any], spans: list[Mapping[str, Any]]) -> str:
    names = {span["docid"] for span in spans} or set(values.get("docids") or ())
    names = names or {str(values.get("annotation_id", ""))}
    if len(names) > 1:
        listed = ", ".join(sorted(map(str, names)))
        raise _UnusableError(
            f"its spans lie in {len(names)} documents: {listed}", "Give each document a row"
        )
    (name,) = names
    # It names a file, and must lead nowhere else.
    if not isinstance(name, str) or name in ("", ".", "..") or Path(name).name != name:
        raise _UnusableError(f"the document {name!r} is no name of a file", _ALIKE)
    return name


def _words(folder: Path, document: str) -> list[str]:
    path = folder / document
    try:
        return path.read_text(encoding="utf-8").split()
    except FileNotFoundError:
        raise _UnusableError(f"there is no document '{document}' in {folder}", _ALIKE) from None
    except (OSError, UnicodeDecodeError) as error:
        raise _UnusableError(f"the document '{path}' cannot be read ({error})", _ALIKE) from error


def _bits(spans: list[Mapping[str, Any]], words: list[str], document: str) -> list[bool]:
    bits = [False] * len(words)
    for span in spans:
        start, end, text = span["start_token"], span["end_token"], span.get("text")
        if start == end and not text:
            continue
        where = f"the span of tokens {start} to {end}"
        if not 0 <= start < end <= len(words):
            raise _UnusableError(
                f"{where} lies outside the {len(words)} tokens of '{document}'", _ALIKE
            )
        if any(bits[start:end]):
            raise _UnusableError(
                f"{where} of '{document}' overlaps another", "Join the two into one span"
            )
        if isinstance(text, str) and text.split() != words[start:end]:
            raise _UnusableError(f"{where} of '{document}' has another text than its row", _ALIKE)
        bits[start:end] = [True] * (end - start)
    return bits


def _build(request: SourceRequest, options: NoOptions) -> ReaderSource:
    """ERASER's movies of the folder given, or of `movies` in it.

    Raises:
        DataError: no such folder.
    """
    folder = source_folder("eraser-movies", request, "train.jsonl and docs")
    if (folder / _UNPACKED).is_dir():
        folder = folder / _UNPACKED
    files = {split: (folder / name, folder / _DOCUMENTS) for split, name in _FILES.items()}
    labels = LabelSpec("classes", names=tuple(_CLASSES.values()))
    return ReaderSource("eraser-movies", 1, labels, files, _read)


ERASER_MOVIES = SourceComponent(
    name="eraser-movies",
    help="ERASER's film reviews, negative / positive, with the phrases that people marked",
    build=_build,
    capabilities=frozenset({"rationales"}),
    needs="--from FOLDER with train.jsonl, val.jsonl, test.jsonl and docs",
    source="DeYoung et al., ACL 2020",
)
