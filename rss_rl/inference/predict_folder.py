"""Scoring a folder of Parquet files: one output per file, of the same name and written atomically.

A record next to the outputs holds the arguments, so that the same call resumes after a stop or
kill, and a different one is refused. An output depends only on its file and the model: each file
is read from its start, with one thread, by a model that remembers no words of other files.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import Any

from pyarrow import fs

from rss_rl.components import Trust
from rss_rl.errors import DataError, StorageError
from rss_rl.inference.artifact import PackedModel
from rss_rl.inference.model import Model, load_model
from rss_rl.inference.predict_file import Counts, score_stored
from rss_rl.rollouts.snapshot import fixed_threads
from rss_rl.storage import Storage, StoredFile, is_uri, open_storage
from rss_rl.version import VERSION

RECORD = "_predict.json"
"""Readers of Parquet folders ignore names with a leading underscore."""
_REPEAT = "Repeat that call, give another --output, or replace what is there with --overwrite"


@dataclass(frozen=True)
class FolderJob:
    """A scoring job; can be pickled.

    files   name and size in bytes of each input file
    record  contents of RECORD in the output
    done    names of the outputs that exist
    """

    source: Storage
    target: Storage
    files: Mapping[str, int]
    columns: tuple[str, ...]
    skip_bad_rows: bool
    trust: Trust
    record: str
    done: frozenset[str]

    @property
    def waiting(self) -> list[str]:
        """Names of the files that are not yet scored, largest first."""
        return sorted(self.files.keys() - self.done, key=lambda name: (-self.files[name], name))

    def complete(self) -> int:
        """How many outputs exist now."""
        return len(self.files.keys() & self.target.files().keys())


def begin_folder(
    model: PackedModel,
    source: str,
    target: str,
    columns: tuple[str, ...],
    trust: Trust,
    *,
    skip_bad_rows: bool,
    overwrite: bool,
) -> FolderJob:
    """Find out what is left to do; the first call writes the record.

    Args:
        source: folder of Parquet files, or one such file: a local path or a URI.
        target: folder for the outputs, a local path or a URI.
        overwrite: replace outputs of another call, but never other files.

    Raises:
        DataError: there are no files; the output holds something else, or overlaps the input.
        StorageError: a storage does not respond.
    """
    files_of, files = _open_input(source)
    outputs = open_storage(target)
    _check_apart(files_of, outputs)
    asked = {
        "schema_version": 1,
        "rss_rl": VERSION,
        "model": model.sha256,
        "step": model.step,
        "columns": list(columns),
        "input": files_of.uri,
        "files": files,
    }
    record = json.dumps(asked, indent=2, sort_keys=True) + "\n"
    there, before = outputs.files().keys() - {RECORD}, _record_of(outputs)
    known = set() if before is None else before["files"].keys()
    if others := there - known:
        raise DataError(
            f"holds files that `predict` did not write, such as {min(others)}",
            where=target,
            remedy="Give an empty folder as --output",
        )
    if before not in (None, asked) and not overwrite:
        changed = [key for key in asked if (before or {}).get(key) != asked[key]]
        raise DataError(
            f"was begun with a different {', '.join(changed)}", where=target, remedy=_REPEAT
        )
    if before is None or overwrite:
        for name in sorted(there):
            outputs.delete(name)
        outputs.write(RECORD, record.encode())
        there = set()
    outputs.clear(lambda name: name in files)
    done = frozenset(there)
    return FolderJob(files_of, outputs, files, columns, skip_bad_rows, trust, record, done)


def _open_input(location: str) -> tuple[Storage, dict[str, int]]:
    """The folder (of one file: its parent), and the sizes of the Parquet files to score."""
    location = location if is_uri(location) else str(Path(location).resolve())
    storage, only = open_storage(location), ""
    if storage.is_file():
        folder, _, only = location.rpartition("/")
        storage = open_storage(folder)
    files = {
        name: size
        for name, size in sorted(storage.files().items())
        if _is_data(name) and only in ("", name)
    }
    if not files:
        raise DataError(
            "holds no Parquet files",
            where=location,
            remedy="Give a folder with .parquet files as --input, or one such file",
        )
    return storage, files


def _is_data(name: str) -> bool:
    hidden = any(part.startswith(("_", ".")) for part in PurePosixPath(name).parts)
    return name.endswith(".parquet") and not hidden


def _check_apart(source: Storage, target: Storage) -> None:
    """Refuse identical and nested folders."""
    if source.filesystem.type_name != target.filesystem.type_name:
        return
    local = isinstance(source.filesystem, fs.LocalFileSystem)
    one, other = (
        Path(root).resolve() if local else PurePosixPath(root)
        for root in (source.root, target.root)
    )
    if one == other or one in other.parents or other in one.parents:
        raise DataError(
            f"overlaps the input {source.uri}, which is never written to",
            where=target.uri,
            remedy="Give another folder as --output",
        )


def _record_of(outputs: Storage) -> dict[str, Any] | None:
    """The record of an earlier call; None if there was none."""
    content = outputs.read(RECORD)
    if content is None:
        return None
    try:
        record = json.loads(content)
        if not isinstance(record, dict) or not isinstance(record.get("files"), dict):
            raise ValueError("no record of `predict`")
    except (ValueError, RecursionError) as error:
        raise DataError(
            f"cannot be read ({error})",
            where=f"{outputs.uri}/{RECORD}",
            remedy="Give another --output, or remove what is there",
        ) from error
    return record


class FileScorer:
    """Scores files of a job, in any process with access to both storages."""

    def __init__(self, job: FolderJob, packed: PackedModel, device: str = "cpu") -> None:
        self._job, self._packed, self._device = job, packed, device
        self._model: Model | None = None

    def score(
        self,
        name: str,
        progress: Callable[[Counts], None] = lambda counts: None,
        stop: Callable[[], bool] = lambda: False,
    ) -> Counts:
        """Write the output of one file; arguments and errors as `score_file`.

        Raises:
            StorageError: this machine does not see the folders of the call.
        """
        job = self._job
        if self._model is None:
            self._check_seen()
            with TemporaryDirectory() as folder:
                self._packed.unpack(Path(folder))
                self._model = load_model(folder, trust=job.trust, device=self._device)
        with fixed_threads(1):
            counts = score_stored(
                self._model,
                StoredFile(job.source, name),
                job.target,
                job.columns,
                skip_bad_rows=job.skip_bad_rows,
                progress=progress,
                stop=stop,
            )
        if self._model.has_new_words:
            self._model = None
        return counts

    def _check_seen(self) -> None:
        if self._job.target.read(RECORD) != self._job.record.encode():
            raise StorageError(
                "the output does not belong to this call: another call replaced it, or this machine"
                " has another folder of that name",
                where=self._job.target.uri,
                remedy="Give --input and --output as URIs, or on a disk that all nodes share",
            )


def score_here(
    packed: PackedModel,
    job: FolderJob,
    stop: Callable[[], bool],
    progress: Callable[[Counts], None],
    device: str = "cpu",
) -> Iterator[Counts]:
    """Score the remaining files one after the other in this process.

    Args:
        stop: polled after each block; True stops, and drops the current file's output.
        progress: called with the counts so far of the current file.
        device: that computes: cpu, cuda, cuda:1, ...

    Yields:
        The counts of each completed file.
    """
    scorer = FileScorer(job, packed, device)
    for name in job.waiting:
        counts = scorer.score(name, progress, stop)
        if not counts.complete:
            return
        yield counts
