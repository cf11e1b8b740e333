"""ERASER's seven tasks, which share a format: labelled rows, and the evidence that people marked.

A line of a split's file is a row: `annotation_id`, `classification`, `query` and `evidences`,
groups of spans of the tokens of a document. Documents are files in the folder `docs`, or lines of
docs.jsonl (`docid`, `document`); a line of a document is a sentence, with tokens separated by
spaces. The rationale is the tokens that any span covers. Spans without tokens and text, of which
the test rows of movies have a few, are ignored.

The texts of an example depend on the task: the document alone (movies), document and query
(questions, claims, answers to choose from), or premise and hypothesis, which are documents named
after their row (e-SNLI). Queries are not marked.

Movies: the marks of train and val suffice to tell the label, those of test are meant to be complete
(31% of the tokens there, 9% in training).

Source: DeYoung et al., ERASER: A Benchmark to Evaluate Rationalized NLP Models, ACL 2020.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Literal, NamedTuple

from rss_rl.components import NoOptions, Options
from rss_rl.data.corpora.folders import source_folder
from rss_rl.data.records import Record, RowModel, examples, read_records
from rss_rl.data.sources import ReaderSource, Row, SourceComponent, SourceRequest, Words
from rss_rl.errors import DataError
from rss_rl.types import LabelSpec

_FILES = {"train": "train.jsonl", "dev": "val.jsonl", "test": "test.jsonl"}
_FOLDER, _LINES = "docs", "docs.jsonl"
_ALIKE = "Take the documents and the .jsonl files out of one archive"

Texts = Literal["document", "query", "pair"]
"""The texts of an example: the document, document and query, or premise and hypothesis."""
Sentences = list[list[str]]
"""The tokens of each sentence of a document."""
_Find = Callable[[str], Sentences]


class _UnusableError(Exception):
    """Why a row cannot be used, and a remedy."""


class Task(NamedTuple):
    """A task: its name, its archive's folder, the kind of its texts, the class of each label."""

    name: str
    unpacked: str
    texts: Texts
    classes: Mapping[str, str]


def _read(split: str, path: Path, documents: Path, *, task: Task, whole: bool) -> Iterator[Row]:
    """Stream one split; `whole`: sentences with a marked token are marked completely.

    Raises:
        DataError: the folder lacks the split's file or the documents.
    """
    for needed in (path, documents):
        if not needed.exists():
            raise DataError(
                f"there is no {needed.name}",
                where=str(path.parent),
                remedy=f"Unpack {task.unpacked}.tar.gz of ERASER there, or name another --from",
            )
    find = (
        partial(_from_folder, documents)
        if documents.is_dir()
        else partial(_from_lines, _documents_of(documents))
    )
    yield from examples(read_records(path), partial(_example, find=find, task=task, whole=whole))


def _example(record: Record, find: _Find, task: Task, whole: bool) -> Row:
    given = _Row.model_validate(record.values)
    spans = [span for group in given.evidences for span in group]
    try:
        names = _documents(given, spans, task.texts)
        texts, rationale = [], []
        for name in names:
            sentences = find(name)
            words = list(chain.from_iterable(sentences))
            bits = _bits([span for span in spans if span.docid == name], words, name)
            texts.append(Words(words))
            rationale.append(tuple(_widened(bits, sentences) if whole else bits))
        if task.texts == "query":
            texts.append(Words(_tokens(given.query or "")))
            rationale.append((False,) * len(texts[-1]))
    except _UnusableError as error:
        return record.bad(*error.args)
    label = task.classes.get(given.classification, given.classification)
    row = given.annotation_id or names[0]
    return record.example(row, tuple(texts), label, rationale=tuple(rationale))


class _Span(RowModel):
    """Marked tokens of a document."""

    docid: str
    start_token: int
    end_token: int
    text: Any = None


class _Row(RowModel):
    annotation_id: str = ""
    classification: str = ""
    query: str | None = ""
    docids: list[str] | None = None
    evidences: list[list[_Span]]


def _documents(given: _Row, spans: Sequence[_Span], texts: Texts) -> tuple[str, ...]:
    """The names of the documents that a row is about."""
    found, row = {span.docid for span in spans}, given.annotation_id
    if texts == "pair":
        names = (f"{row}_premise", f"{row}_hypothesis")
        if other := sorted(found - set(names)):
            raise _UnusableError(
                f"a span is in '{other[0]}', which is neither {names[0]} nor {names[1]}", _ALIKE
            )
        return names
    found = found or set(given.docids or ()) or {row}
    if len(found) > 1:
        listed = ", ".join(sorted(found))
        raise _UnusableError(
            f"its spans lie in {len(found)} documents: {listed}", "Give each document a row"
        )
    return tuple(found)


def _tokens(line: str) -> list[str]:
    """The tokens of a line, separated by spaces and no other white space."""
    return [token for token in line.strip().split(" ") if token]


def _sentences(text: str) -> Sentences:
    return [tokens for line in text.split("\n") if (tokens := _tokens(line))]


def _from_folder(folder: Path, name: str) -> Sentences:
    # It must name a file in the folder.
    if not isinstance(name, str) or name in ("", ".", "..") or Path(name).name != name:
        raise _UnusableError(f"the document {name!r} is not the name of a file", _ALIKE)
    path = folder / name
    try:
        return _sentences(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise _UnusableError(f"there is no document '{name}' in {folder}", _ALIKE) from None
    except (OSError, UnicodeDecodeError) as error:
        raise _UnusableError(f"the document '{path}' cannot be read ({error})", _ALIKE) from error


def _documents_of(path: Path) -> dict[str, str]:
    """The documents of docs.jsonl by name.

    Raises:
        DataError: a line is not a document.
    """
    found = {}
    for record in read_records(path, "jsonl"):
        values = record.values if isinstance(record, Record) else {}
        name, text = values.get("docid"), values.get("document")
        if not isinstance(name, str) or not isinstance(text, str):
            raise DataError(
                "is not a JSON object with the texts 'docid' and 'document'",
                where=f"{path}, row {record.row}",
                remedy=_ALIKE,
            )
        found[name] = text
    return found


def _from_lines(documents: Mapping[str, str], name: str) -> Sentences:
    if name not in documents:
        raise _UnusableError(f"there is no document '{name}' in {_LINES}", _ALIKE)
    return _sentences(documents[name])


def _bits(spans: Sequence[_Span], words: list[str], document: str) -> list[bool]:
    bits = [False] * len(words)
    for span in spans:
        start, end, text = span.start_token, span.end_token, span.text
        if start == end and not text:
            continue
        where = f"the span of tokens {start} to {end}"
        if not 0 <= start < end <= len(words):
            raise _UnusableError(
                f"{where} lies outside the {len(words)} tokens of '{document}'", _ALIKE
            )
        if isinstance(text, str) and _tokens(text) != words[start:end]:
            raise _UnusableError(f"{where} of '{document}' has another text than its row", _ALIKE)
        bits[start:end] = [True] * (end - start)
    return bits


def _widened(bits: list[bool], sentences: Sentences) -> list[bool]:
    """Bits widened to whole sentences: True in sentences with a marked token."""
    wide, start = list[bool](), 0
    for sentence in sentences:
        end = start + len(sentence)
        wide += [any(bits[start:end])] * len(sentence)
        start = end
    return wide


class EvidenceOptions(Options):
    """The rationale."""

    evidence: Literal["spans", "sentences"] = "spans"
    """The tokens that people marked, or the whole sentences with a marked token."""


def _build(
    request: SourceRequest, options: NoOptions | EvidenceOptions, *, task: Task
) -> ReaderSource:
    """A task from the given folder, or from the folder in it that its archive unpacks into.

    Raises:
        DataError: no such folder.
    """
    folder = source_folder(task.name, request, f"train.jsonl and {_FOLDER} or {_LINES}")
    if (folder / task.unpacked).is_dir():
        folder = folder / task.unpacked
    documents = folder / (_LINES if (folder / _LINES).exists() else _FOLDER)
    files = {split: (folder / name, documents) for split, name in _FILES.items()}
    labels = LabelSpec("classes", names=tuple(task.classes.values()))
    whole = isinstance(options, EvidenceOptions) and options.evidence == "sentences"
    reader = partial(_read, task=task, whole=whole)
    return ReaderSource(task.name, 1 if task.texts == "document" else 2, labels, files, reader)


def _component(
    *,
    name: str,
    unpacked: str,
    texts: Texts,
    classes: Mapping[str, str] | str,
    what: str,
    by_word: bool = False,
) -> SourceComponent:
    """The component of a task.

    Args:
        classes: names by label; a str: the labels themselves, separated by commas.
        by_word: people marked words of a single sentence.
    """
    named = {each: each for each in classes.split(", ")} if isinstance(classes, str) else classes
    return SourceComponent(
        name=name,
        help=f"ERASER's {what}",
        build=partial(_build, task=Task(name, unpacked, texts, named)),
        options=NoOptions if by_word else EvidenceOptions,
        capabilities=frozenset({"rationales"} | (set() if texts == "document" else {"pairs"})),
        needs=f"--from FOLDER with train.jsonl, val.jsonl, test.jsonl and {_FOLDER} or {_LINES}",
        source="DeYoung et al., ACL 2020",
    )


_TRUTH = "False, True"
ERASER_MOVIES = _component(
    name="eraser-movies",
    unpacked="movies",
    texts="document",
    classes={"NEG": "negative", "POS": "positive"},
    what="film reviews, negative / positive, with the phrases that people marked",
)
ERASER_MULTIRC = _component(
    name="eraser-multirc",
    unpacked="multirc",
    texts="query",
    classes=_TRUTH,
    what="MultiRC: is the answer right, with the sentences of the passage that say so",
)
ERASER_FEVER = _component(
    name="eraser-fever",
    unpacked="fever",
    texts="query",
    classes="SUPPORTS, REFUTES",
    what="FEVER: does the article support the claim, with the sentences that say so",
)
ERASER_BOOLQ = _component(
    name="eraser-boolq",
    unpacked="boolq",
    texts="query",
    classes=_TRUTH,
    what="BoolQ: is the answer yes, with the passages of the article that say so",
)
ERASER_EVIDENCE_INFERENCE = _component(
    name="eraser-evidence",
    unpacked="evidence_inference",
    texts="query",
    classes="significantly decreased, no significant difference, significantly increased",
    what="Evidence Inference: what a trial found, with the passages of the article that say so",
)
ERASER_COS_E = _component(
    name="eraser-cos-e",
    unpacked="cose",
    texts="query",
    classes="A, B, C, D, E",
    what="CoS-E: which of five answers is right, with the words of the question that people marked",
    by_word=True,
)
ERASER_E_SNLI = _component(
    name="eraser-e-snli",
    unpacked="esnli",
    texts="pair",
    classes="entailment, neutral, contradiction",
    what="e-SNLI: sentence pairs, with the words of both sentences that people marked",
    by_word=True,
)
