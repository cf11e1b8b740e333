"""Predictions for a file, or for each file of a folder: in constant memory, complete or not there.

Columns of an output; those of a second text end in `_b`:

error           with --skip-bad-rows: what is wrong with the row; the next columns are then empty
prediction      name of the class, or the score; empty where its probability is below
                --abstain-below
p_CLASS         probability of each class
kept            share of the words that are kept
known           share of the words that are known to the model, see `Explanation.known`
words_kept      the kept words, with spaces between them

The columns of the input follow, empty if a row could not be parsed. Names that clash with those
above are prefixed with `input_`. A Parquet output says in its footer which model, input and options
it was made from; that tells what the same call need not do again.
"""

from __future__ import annotations

import csv
import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import islice
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory, gettempdir
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from rss_rl.data.checks import is_storable
from rss_rl.data.sources import BadRow, Text
from rss_rl.data.tables import (
    Record,
    column_names,
    column_types,
    file_kind,
    is_gzip,
    read_records,
    require_columns,
)
from rss_rl.durable import disk_errors, file_sha256, is_same_file, remove_unfinished, replacing
from rss_rl.errors import ConfigError, DataError, StorageError
from rss_rl.inference.explanation import Explanation
from rss_rl.inference.model import Encoded, Model, check_share
from rss_rl.json_files import without_non_finite
from rss_rl.storage import Storage, open_storage
from rss_rl.types import LabelSpec

Rows = Sequence[Mapping[str, Any]]
_BLOCK = 1024
_FOOTER = b"rss_rl.predict"


@dataclass(frozen=True)
class Counts:
    """Rows read, and rows that could not be scored."""

    rows: int
    bad: int

    def __add__(self, other: Counts) -> Counts:
        """The sum of both."""
        return Counts(self.rows + other.rows, self.bad + other.bad)


@dataclass(frozen=True)
class Job:
    """Which files to score, and how; can be pickled.

    source, target  folders
    outputs         name of the output in `target` for each input in `source` that is left to score
    complete        how many outputs were there already
    model           SHA-256 of the model
    columns         text columns, see `score_file`
    skip_bad_rows   report a bad row in its `error` column instead of raising
    share           of each text's words to keep; None: as the model does
    abstain_below   probability of a class below which none is predicted
    """

    source: Storage
    target: Storage
    outputs: Mapping[str, str]
    complete: int
    model: str
    columns: tuple[str, ...]
    skip_bad_rows: bool
    share: float | None
    abstain_below: float

    def footer(self, sha256: str) -> str:
        """What the footer of an output says: what it was made from. sha256: of the input."""
        inputs = {"model": self.model, "input": sha256, "columns": self.columns}
        options = "skip_bad_rows", "share", "abstain_below"
        return json.dumps(inputs | {name: getattr(self, name) for name in options})

    def is_complete(self, name: str) -> bool:
        """Whether the output of an input is there, made from the same as this job would.

        Raises:
            DataError: there is something else.
        """
        output = self.outputs[name]
        if not self.wrote(name):
            return False
        try:
            with self.target.open(output) as file:
                footer = (pq.read_schema(file).metadata or {}).get(_FOOTER, b"").decode()
        except pa.ArrowException:  # a cut file is none of ours: outputs appear when complete
            footer = ""
        with self.source.open(name) as file:
            if footer == self.footer(hashlib.file_digest(file, "sha256").hexdigest()):
                return True
        what = "is no complete Parquet file that `predict` wrote"
        raise DataError(
            f"exists, and {'is of another model, input or options' if footer else what}",
            where=_place(self.target, output),
            remedy="Give another --output, or replace it with --overwrite",
        )

    def wrote(self, name: str) -> bool:
        """Whether there is an output of an input."""
        return self.target.read(self.outputs[name], 0) is not None


def begin(
    model: str,
    source: str,
    target: str,
    columns: tuple[str, ...],
    *,
    share: float | None = None,
    abstain_below: float = 0.0,
    skip_bad_rows: bool = False,
    overwrite: bool = False,
) -> Job:
    """Find out what is left to score.

    Args:
        model: its SHA-256.
        source: a file, or a folder of Parquet files, a local path or a URI.
        target: of a file with a known suffix: that file; else a folder.
        share, abstain_below, skip_bad_rows: see `Job`.
        overwrite: replace existing outputs, but never an input.

    Raises:
        ConfigError: a share or probability is none.
        DataError: there are no files; an output is an input, or exists and is something else.
        StorageError: a storage does not respond.
    """
    check_share(share)  # refused before anything is read
    if not 0 <= abstain_below <= 1:
        raise ConfigError(
            f"{abstain_below!r:.40} is no probability",
            where="--abstain-below",
            remedy="Give the least one of a class to predict it, such as 0.8",
        )
    place, names, of_folder = _inputs(source)
    outputs = {name: name for name in names}
    if not of_folder and Path(target).suffix:
        file_kind(Path(target))
        folder, outputs = _parent(target), {names[0]: PurePosixPath(target).name}
    else:
        folder = open_storage(target)
    job = Job(place, folder, outputs, 0, model, columns, skip_bad_rows, share, abstain_below)
    _check_apart(job, of_folder)
    if overwrite:
        return job
    left = {name: output for name, output in outputs.items() if not job.is_complete(name)}
    return replace(job, outputs=left, complete=len(outputs) - len(left))


def _inputs(location: str) -> tuple[Storage, list[str], bool]:
    """A folder, names of the files in it to score, and whether the folder was named."""
    storage = open_storage(location)
    if storage.is_file():
        return _parent(location), [PurePosixPath(location).name], False
    local = _local(storage)
    if local is None:
        names = list(storage.files())
    else:  # without what links to folders lead to
        paths = (path for path in local.rglob("*") if path.is_file())
        names = [path.relative_to(local).as_posix() for path in paths]
    names = sorted(
        name for name in names if name.lower().endswith(".parquet") and not _hidden(name)
    )
    if names:
        return storage, names, True
    raise DataError(
        "is no file, and no folder that holds Parquet files",
        where=location,
        remedy="Give a file, or a folder with .parquet files, as --input",
    )


def _parent(location: str) -> Storage:
    head, _, _ = location.rpartition("/")
    return open_storage(head or ("/" if location.startswith("/") else "."))


def _place(folder: Storage, name: str) -> str:
    """The URI or path of a file in a folder."""
    return f"{folder.uri.rstrip('/')}/{name}"


def _local(storage: Storage) -> Path | None:
    return Path(storage.root) if isinstance(storage.filesystem, fs.LocalFileSystem) else None


def _hidden(name: str) -> bool:
    return any(part.startswith(("_", ".")) for part in PurePosixPath(name).parts)


def _check_apart(job: Job, of_folder: bool) -> None:
    """Refuse an output that is an input under any name, or a folder in the other's."""
    remedy, here, there = "Give another --output", _local(job.source), _local(job.target)
    for name, output in job.outputs.items():
        one, other = _place(job.source, name), _place(job.target, output)
        if here is None or there is None:
            same = one == other
        else:
            same = is_same_file(here / name, there / output)
        if same:
            what = f"is the input {one} itself and would be lost"
            raise DataError(what, where=other, remedy=remedy)
    if of_folder and job.source.filesystem.type_name == job.target.filesystem.type_name:
        inside, outside = Path(job.source.root).resolve(), Path(job.target.root).resolve()
        if inside == outside or inside in outside.parents or outside in inside.parents:
            what = f"overlaps the input {job.source.uri}, which is never written to"
            raise DataError(what, where=job.target.uri, remedy=remedy)


class Scorer:
    """Scores files of a job, in any process with access to both folders.

    Args:
        load: returns the model; it is called when a file is there to be scored.
    """

    def __init__(self, job: Job, load: Callable[[], Model]) -> None:
        self._job, self._load = job, cache(load)

    def score(self, name: str, progress: Callable[[Counts], None] = lambda counts: None) -> Counts:
        """Write the output of one input; arguments and errors as `score_file`."""
        job, output, model = self._job, self._job.outputs[name], self._load()
        here, there = _local(job.source), _local(job.target)
        with ExitStack() as stack:
            folder = Path()
            if here is None or there is None:
                remedy = "Name a directory with free space in TMPDIR"
                with disk_errors(Path(gettempdir()), "cannot be written", remedy, StorageError):
                    folder = Path(stack.enter_context(TemporaryDirectory()))
            source = folder / f"in-{PurePosixPath(name).name}" if here is None else here / name
            target = folder / PurePosixPath(output).name if there is None else there / output
            if here is None:
                job.source.download(name, source)
            counts = score_file(
                model,
                source,
                target,
                job.columns,
                skip_bad_rows=job.skip_bad_rows,
                share=job.share,
                abstain_below=job.abstain_below,
                shown=_place(job.source, name),
                footer=job.footer,
                progress=progress,
            )
            if there is None:
                job.target.upload(target, output)
        return counts


def score_file(
    model: Model,
    source: Path,
    target: Path,
    columns: tuple[str, ...] = (),
    *,
    skip_bad_rows: bool = False,
    share: float | None = None,
    abstain_below: float = 0.0,
    shown: str = "",
    footer: Callable[[str], str] = lambda sha256: "",
    progress: Callable[[Counts], None] = lambda counts: None,
) -> Counts:
    """Predict for each row of `source` and write `target`, which appears only when complete.

    Args:
        source: CSV, TSV, JSON lines or Parquet. columns: of its texts; none: those that the run was
            trained on, or where the file lacks them all that it has.
        target: .parquet, .csv, .tsv or .jsonl; an existing file is replaced.
        skip_bad_rows: report a bad row in its `error` column instead of raising.
        share, abstain_below: see `Job`.
        shown: name of `source` in messages. footer: returns what a Parquet file says of itself,
            given the input's SHA-256. progress: called after each block.

    Raises:
        DataError: a bad row, named; an unreadable file or column; the input changed meanwhile.
        StorageError: the target cannot be written; it is left untouched.
    """
    added = own_columns(model.labels, model.inputs.sentences, errors=skip_bad_rows)
    columns_in, before = column_types(source), file_sha256(source)
    texts = _text_columns(source, columns, model, shown)
    score = partial(_score, model, texts, shown or str(source), share, skip_bad_rows, abstain_below)
    rows = read_records(source)
    beside = columns_beside(added, columns_in)
    types = added | {beside[name]: kind for name, kind in columns_in.items()}
    schema = pa.schema(list(types.items()), {_FOOTER: footer(before).encode()})
    counts = Counts(0, 0)
    with disk_errors(target, "cannot be written", "Give another --output", StorageError):
        target.parent.mkdir(parents=True, exist_ok=True)
        remove_unfinished(target)
        with replacing(target) as temporary:
            with open_writer(temporary, _writable_kind(target), schema) as write:
                while block := list(islice(rows, _BLOCK)):
                    scored = list(score(block, beside))
                    write(scored)
                    # Without `skip_bad_rows` a column of this name is the input's.
                    bad = skip_bad_rows and sum(row.get("error") is not None for row in scored)
                    counts += Counts(len(block), bad)
                    progress(counts)
            if file_sha256(source) != before:
                what, remedy = "changed while it was read", "Repeat the command when it is complete"
                raise DataError(what, where=shown or str(source), remedy=remedy)
    return counts


def _score(
    model: Model,
    columns: Sequence[str],
    where: str,
    share: float | None,
    skip_bad_rows: bool,
    abstain_below: float,
    block: Sequence[Record | BadRow],
    beside: Mapping[str, str],
) -> Iterator[dict[str, Any]]:
    """The rows of the output; where: the file, for messages."""
    encoded: list[Encoded] = []
    faults: dict[int, str] = {}
    for record in block:
        place = f"{where}, row {record.row}"
        try:
            encoded.append(model.encode(_texts(record, columns, place), place))
        except DataError as error:
            if not skip_bad_rows:
                raise
            faults[record.row] = error.what
    explanations = iter(model.read_all(encoded, share))
    for record in block:
        bad = record.row in faults
        cells = {"error": faults[record.row]} if bad else _cells(next(explanations), abstain_below)
        values = record.values if isinstance(record, Record) else {}
        yield cells | {beside[name]: value for name, value in values.items()}


def _cells(explanation: Explanation, abstain_below: float) -> dict[str, Any]:
    shares = explanation.class_probabilities or {"": 1.0}
    unsure = {"prediction": None} if max(shares.values()) < abstain_below else {}
    return explanation.cells() | unsure


def _text_columns(path: Path, columns: Sequence[str], model: Model, shown: str) -> list[str]:
    """The columns of the texts.

    Raises:
        DataError: the file cannot be read, or lacks a column.
    """
    have, texts = column_names(path), model.inputs.sentences
    known = model.inputs.manifest.columns[:texts]
    wanted = list(columns or (known if {*known} <= {*have} else ())) or have
    if len(wanted) != texts:
        raise DataError(
            f"the task has {texts} text(s) per example, {len(wanted)} column(s) are named",
            where=shown or str(path),
            remedy=f"Name them with {'--text' if texts == 1 else '--text and --text-b'}; the"
            f" file's are: {', '.join(have) or 'none'}",
        )
    require_columns(path, have, wanted)
    return wanted


def _texts(record: Record | BadRow, columns: Sequence[str], where: str) -> list[Text]:
    """The texts of a row.

    Raises:
        DataError: it has none; `where` is for messages.
    """
    if isinstance(record, BadRow):
        raise record.error()
    texts: list[Text] = []
    for name in columns:
        text, fault = _text(record.values.get(name)), ("no text", "Fill it")
        if text is not None and not is_storable(text if isinstance(text, tuple) else (text,)):
            text = None
            fault = ("half a character (a lone surrogate)", "Write the text again as UTF-8")
        if text is None:
            what = f"column '{name}' holds {fault[0]}"
            raise DataError(what, where=where, remedy=fault[1])
        texts.append(text)
    return texts


def _text(value: Any) -> Text | None:
    if isinstance(value, str):
        return value if value.strip() else None
    if isinstance(value, list) and value and all(isinstance(word, str) and word for word in value):
        return tuple(value)
    return None


def own_columns(labels: LabelSpec, texts: int, *, errors: bool) -> dict[str, pa.DataType]:
    """Name and Arrow type of each column that scoring adds; texts: per example."""
    columns = {"error": pa.string()} if errors else {}
    columns["prediction"] = pa.float64() if labels.kind == "score" else pa.string()
    names = [f"p_{name}" for name in labels.names]
    columns |= dict.fromkeys((*names, "kept", "known"), pa.float64())
    return columns | dict.fromkeys(("words_kept", "words_kept_b")[:texts], pa.string())


def columns_beside(added: Iterable[str], present: Iterable[str]) -> dict[str, str]:
    """Output names of the input's columns, renamed if they clash with the `added` names.

    >>> columns_beside(["kept", "error"], ["text", "kept", "input_kept"])
    {'text': 'text', 'kept': 'input_input_kept', 'input_kept': 'input_kept'}
    """
    added, present = set(added), list(present)
    shown = {}
    for name in present:
        shown[name] = name
        while shown[name] in added or (shown[name] != name and shown[name] in present):
            shown[name] = f"input_{shown[name]}"
    return shown


def _writable_kind(path: Path) -> str:
    """Format of an output file, see `file_kind`.

    Raises:
        DataError: another suffix, or .gz.
    """
    kind = file_kind(path)
    if is_gzip(path):
        raise DataError(
            "output is not compressed", where=str(path), remedy="Leave .gz out, or give .parquet"
        )
    return kind


@contextmanager
def open_writer(path: Path, kind: str, schema: pa.Schema) -> Iterator[Callable[[Rows], None]]:
    """Open a file for writing; yields a function that writes rows.

    Args:
        kind: as `file_kind` gives it.
        schema: only Parquet uses the types. Values of a string column that are not strings are
            written as JSON.

    Raises:
        OSError: a write fails.
    """
    if kind == "parquet":
        with pq.ParquetWriter(path, schema) as writer:
            yield lambda rows: writer.write_table(_table(rows, schema))
        return
    # A lone surrogate in another column is written as an escape, which JSON reads back unchanged.
    with path.open("w", encoding="utf-8", errors="backslashreplace", newline="") as stream:
        if kind == "jsonl":
            yield lambda rows: stream.writelines(
                _json({name: row.get(name) for name in schema.names}) + "\n" for row in rows
            )
            return
        table = csv.writer(stream, delimiter="\t" if kind == "tsv" else ",")
        table.writerow(schema.names)
        yield lambda rows: table.writerows(_fields(row, schema.names) for row in rows)


def _table(rows: Rows, schema: pa.Schema) -> pa.Table:
    columns = [_column([row.get(field.name) for row in rows], field.type) for field in schema]
    return pa.table(columns, schema=schema)


def _column(values: list[Any], kind: pa.DataType) -> pa.Array:
    if pa.types.is_string(kind):
        return pa.array([None if v is None else _as_text(v) for v in values], kind)
    if pa.types.is_timestamp(kind) and kind.unit == "ns":
        return pa.array(values, pa.string()).cast(kind)  # `read_records` returns them as strings
    return pa.array(values, kind)


def _as_text(value: Any) -> str:
    text = value if isinstance(value, str) else _json(value)
    return text.encode("utf-8", "backslashreplace").decode()


def _json(value: Any) -> str:
    """One line of JSON, which has no NaN and no infinity: null."""
    return json.dumps(without_non_finite(value), ensure_ascii=False, default=str)


def _fields(row: Mapping[str, Any], names: Sequence[str]) -> list[Any]:
    """Values of a CSV row; lists and mappings as JSON."""
    values = (row.get(name) for name in names)
    return [_json(value) if isinstance(value, list | dict) else value for value in values]
