"""The directory of one run: its configuration, its output, and the lock of its writer.

config.json   the resolved configuration, read by a resume, and the choices of `settle`
config.yaml   the same configuration, for people and for `rss-rl train`
inputs/       copies of files that the run depends on, such as vocabulary.json
checkpoints/ metrics/ tensorboard/
report.json   the final report; report.html shows it
evaluated.json  scores of labelled files that are no split, by file name
all-tokens/   the run of the comparison with all tokens, of the same form
provenance.json  program, libraries and data that the run began with
events.jsonl  events, a JSON object a line
status.json   current status, rewritten at events, once a second at most
run.lock      held by the training process
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import socket
import stat
import time
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self

from rss_rl.components import NOTHING, Trust
from rss_rl.config import RunConfig, parse_config, yaml_text
from rss_rl.durable import disk_errors, refuse_links, remove_unfinished, replace_file, replacing
from rss_rl.errors import CheckpointError
from rss_rl.json_files import canonical_json, read_json, read_record, without_non_finite

SCHEMA_VERSION = 1
EVENTS_FILE, STATUS_FILE = "events.jsonl", "status.json"
CONFIG_FILE, REPORT_FILE = "config.json", "report.json"
PAGE_FILE, EVALUATED_FILE = "report.html", "evaluated.json"
LOCK_FILE = "run.lock"
PROVENANCE_FILE = "provenance.json"
_OWN_FILES = (
    CONFIG_FILE,
    "config.yaml",
    REPORT_FILE,
    PAGE_FILE,
    EVALUATED_FILE,
    STATUS_FILE,
    PROVENANCE_FILE,
    EVENTS_FILE,
)
ALL_TOKENS = "all-tokens"
"""Subdirectory with the run of the same model on all tokens."""
STATES = "data.states"
"""Key of `settled`: the states of tokens that a run began with, by their SHA-256."""
_OWN_DIRECTORIES = (ALL_TOKENS, "checkpoints", "inputs", "metrics", "tensorboard")
_LOCK_ATTEMPTS, _LOCK_PAUSE_S = 5, 0.05
_LONGEST_HOLDER = 200
_UNUSABLE = "the run directory cannot be used"
_REMEDY = "Choose a directory that can be written, on a disk with free space"


class RunDirectory:
    """A run directory, from `create` or `open`; a context manager that releases the lock.

    path     the directory, absolute
    config   the resolved configuration as plain JSON data
    settled  choices made when the run began, by key of the configuration, see `settle`
    """

    def __init__(
        self, path: Path, config: dict[str, Any], lock: int | None, settled: dict[str, str]
    ) -> None:
        self.path, self.config, self._lock = path, config, lock
        self.settled = settled

    @classmethod
    def create(
        cls,
        path: Path,
        config: Mapping[str, Any],
        *,
        overwrite: bool = False,
        settled: Mapping[str, str] = MappingProxyType({}),
    ) -> Self:
        """Create the directory of a new run and lock it for this process.

        Args:
            path: may exist if it is empty, or holds a run that failed before its first checkpoint,
                or holds any run and `overwrite` is set.
            config: the resolved configuration, plain JSON data.
            overwrite: delete an existing run, but no other files.
            settled: see `settle`.

        Raises:
            CheckpointError: it holds other files, another process trains there, or writing fails.
        """
        path = path.absolute()
        text = _config_text(path, config, settled)
        with disk_errors(path, _UNUSABLE, _REMEDY):
            str(path).encode()  # TensorBoard needs it as UTF-8
            lock = claim(path, overwrite=overwrite)
            try:
                _write_config(path, config, text)
            except BaseException:
                os.close(lock)
                raise
        return cls(path, dict(config), lock, dict(settled))

    @classmethod
    def open(cls, path: Path, *, lock: bool = False) -> Self:
        """Open the directory of a run for reading, or with `lock` for training.

        Raises:
            CheckpointError: there is no run, or another process trains there.
        """
        path = path.absolute()
        file = path / CONFIG_FILE
        remedy = "Name the directory of a run, as given to 'rss-rl train'"
        record = read_record(file, SCHEMA_VERSION, remedy)
        config, settled = record.get("config"), record.get("settled", {})
        if not isinstance(config, dict) or not isinstance(settled, dict):
            raise CheckpointError("not the configuration of a run", where=str(file), remedy=remedy)
        with disk_errors(path, _UNUSABLE, _REMEDY):
            return cls(path, config, _take_lock(path) if lock else None, settled)

    def parsed_config(self, trust: Trust = NOTHING, *, in_use: bool = False) -> RunConfig:
        """The configuration, completed with defaults of keys that are newer than the run.

        Args:
            trust, in_use: which components are imported, see `rss_rl.config.parse_config`.

        Raises:
            ConfigError: it is not valid in this version.
        """
        where = str(self.path / CONFIG_FILE)
        return parse_config(self.config, where=where, trust=trust, in_use=in_use)

    def settle(self, key: str, value: str) -> None:
        """Record the value chosen for a key that depends on the machine; needs the lock.

        The configuration itself is not changed, so that runs on different machines have the same.

        Raises:
            CheckpointError: writing fails.
        """
        self.settled[key] = value
        text = _config_text(self.path, self.config, self.settled)
        with disk_errors(self.path, _UNUSABLE, _REMEDY):
            _write_config(self.path, self.config, text)

    @property
    def inputs(self) -> Path:
        """Directory with copies of the files that the run depends on."""
        return self.path / "inputs"

    def copy_in(self, source: Path) -> Path:
        """Atomically copy a file into `inputs` under its own name.

        Raises:
            CheckpointError: it cannot be read or written.
        """
        target = self.inputs / source.name
        with disk_errors(target, _UNUSABLE, _REMEDY):
            self.inputs.mkdir(exist_ok=True)
            with replacing(target) as temporary:
                shutil.copyfile(source, temporary)
        return target

    def note_provenance(self, record: Mapping[str, Any]) -> None:
        """Write `provenance.json` unless it exists: it describes the start of the run.

        Raises:
            CheckpointError: writing fails.
        """
        if not (self.path / PROVENANCE_FILE).exists():
            self._write(PROVENANCE_FILE, record)

    def write_report(self, report: Mapping[str, Any]) -> Path:
        """Write `report.json`; non-finite numbers, which JSON lacks, become null.

        Raises:
            CheckpointError: not plain JSON data, or writing fails.
        """
        finite = without_non_finite(dict(report))
        canonical_json(finite, where=str(self.path / REPORT_FILE))
        return self._write(REPORT_FILE, finite)

    def _write(self, name: str, record: Mapping[str, Any]) -> Path:
        target = self.path / name
        with disk_errors(target, _UNUSABLE, _REMEDY):
            replace_file(target, json.dumps(dict(record), indent=2) + "\n")
        return target

    def read_report(self) -> dict[str, Any]:
        """The final report.

        Raises:
            CheckpointError: there is none, or it is damaged.
        """
        return read_json(
            self.path / REPORT_FILE,
            remedy="Finish the run with 'rss-rl train --resume RUN', or score what there is with"
            " 'rss-rl evaluate RUN --which latest'",
        )

    def data_digest(self) -> str:
        """The digest of the data as they were when the run began; their path if it is not known."""
        try:
            record = read_json(self.path / PROVENANCE_FILE, "It says what a run was made with")
            return str(record["data"]["manifest_sha256"])
        except (CheckpointError, KeyError, TypeError):
            return str(self.config.get("data"))

    def close(self) -> None:
        """Release the lock; the directory can still be read."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _config_text(path: Path, config: Mapping[str, Any], settled: Mapping[str, str]) -> str:
    record = {"schema_version": SCHEMA_VERSION, "config": dict(config), "settled": dict(settled)}
    return canonical_json(record, where=str(path / CONFIG_FILE)) + "\n"


def _write_config(path: Path, config: Mapping[str, Any], text: str) -> None:
    replace_file(path / CONFIG_FILE, text)  # first, as it makes the directory a run
    replace_file(path / "config.yaml", yaml_text(dict(config)))


def refuse_changed(before: Mapping[str, Any], config: Mapping[str, Any], where: str) -> None:
    """Refuse to resume a run with another configuration than it began with, both plain JSON data.

    Raises:
        CheckpointError: names the keys.
    """
    changed = [key for key in {**before, **config} if before.get(key) != config.get(key)]
    if changed:
        raise CheckpointError(
            f"the configuration differs from the run's in: {', '.join(changed)[:500]}",
            where=where,
            remedy="Resume without overrides, or start a new run in another place",
        )


def check_free(path: Path, *, overwrite: bool = False) -> None:
    """Refuse a directory with other files than a run's, or with a run unless `overwrite`.

    Raises:
        CheckpointError: it is neither empty nor a run that may be deleted.
    """
    if not path.exists() or not any(name != LOCK_FILE for name in os.listdir(path)):
        return
    try:
        RunDirectory.open(path)
    except CheckpointError as error:
        raise CheckpointError(
            f"the directory is not empty and holds no run ({error.what})",
            where=str(path),
            remedy="Choose a directory that is empty or does not exist",
        ) from error
    began = any((path / "checkpoints").glob("step-*"))
    if began and not overwrite:
        raise CheckpointError(
            "there is already a run",
            where=str(path),
            remedy="Resume it with --resume, replace it with --overwrite, or choose another one",
        )


def claim(path: Path, *, overwrite: bool = False) -> int:
    """Create and lock a directory for a new run, and delete the run that it holds.

    Args:
        path: as in `RunDirectory.create`. overwrite: delete also a run with checkpoints.

    Returns:
        The file descriptor of the lock, closed to release it.

    Raises:
        CheckpointError: it holds a run or other files, or another process trains there.
        OSError: it cannot be used.
    """
    check_free(path, overwrite=overwrite)
    path.mkdir(parents=True, exist_ok=True)
    lock = _take_lock(path)
    try:
        check_free(path, overwrite=overwrite)  # another process may have worked here until now
        _clear_run(path)
    except BaseException:
        os.close(lock)
        raise
    return lock


def _clear_run(path: Path) -> None:
    """Delete a run, its configuration last, so that a half-deleted run still counts as one."""
    for name in _OWN_DIRECTORIES:
        if (path / name).exists():
            shutil.rmtree(path / name)
    for name in reversed(_OWN_FILES):
        remove_unfinished(path / name)
        (path / name).unlink(missing_ok=True)


def _take_lock(run_dir: Path) -> int:
    """Take the lock of the run; its file descriptor, closed to release it.

    The kernel releases it however the process ends, so no stale lock is left behind, and no
    process id has to be trusted.

    Raises:
        CheckpointError: another process trains there, or something is a link.
        OSError: the file cannot be used.
    """
    refuse_links(run_dir, _OWN_DIRECTORIES)
    descriptor = _open_lock(run_dir, os.O_RDWR | os.O_CREAT)
    try:
        for attempt in range(_LOCK_ATTEMPTS):
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError as error:
                if attempt + 1 == _LOCK_ATTEMPTS:
                    raise CheckpointError(
                        f"{_holder(descriptor)} is training there",
                        where=str(run_dir),
                        remedy="Wait for it, stop it, or choose another directory",
                    ) from error
                time.sleep(_LOCK_PAUSE_S)  # `lock_holder` may hold it for a moment
            except OSError as error:
                raise CheckpointError(
                    f"its filesystem has no locks, which keep two trainings apart ({error})",
                    where=str(run_dir),
                    remedy="Train on another disk, such as a local one; --storage copies the run",
                ) from error
        os.ftruncate(descriptor, 0)
        os.write(descriptor, f"process {os.getpid()} on {socket.gethostname()}\n".encode())
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def lock_holder(run_dir: Path) -> str | None:
    """The training process, as `process 12 on host`; None if there is none.

    Raises:
        OSError: the file cannot be read.
    """
    try:
        descriptor = _open_lock(run_dir, os.O_RDONLY)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _holder(descriptor)
    finally:
        os.close(descriptor)
    return None


def _open_lock(run_dir: Path, flags: int) -> int:
    """Open the lock file; links are refused, as the target would be truncated."""
    guarded = flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    descriptor = os.open(run_dir / LOCK_FILE, guarded, 0o644)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(f"{run_dir / LOCK_FILE} is not a plain file")
    return descriptor


def _holder(descriptor: int) -> str:
    """The holder's name; only printable characters, as it is shown on a terminal."""
    text = os.pread(descriptor, _LONGEST_HOLDER, 0).decode(errors="replace")
    return "".join(c for c in text if c.isprintable()).strip() or "another process"
