"""Restoring a run from its storage into an empty directory, and checks of what may be resumed."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from rss_rl.durable import disk_errors
from rss_rl.errors import CheckpointError, StorageError
from rss_rl.json_files import json_object
from rss_rl.mirror.files import is_of_run
from rss_rl.runs.checkpoint import (
    LATEST,
    STATE_FILE,
    checkpoint_steps,
    load_checkpoint,
    parse_step,
    read_pointer,
)
from rss_rl.runs.run_directory import CONFIG_FILE, REPORT_FILE, check_free, claim, refuse_changed
from rss_rl.storage import Storage

_LATEST = f"checkpoints/{LATEST.upper()}"


def refuse_foreign(storage: Storage) -> None:
    """Refuse a path with files that have names of a run's files but do not belong to a run.

    Raises:
        CheckpointError: its config.json is not a run's.
        StorageError: there are such files but no config.json, or the storage fails.
    """
    names = [name for name in storage.files() if is_of_run(name)]
    if names and stored_config(storage) is None:
        raise StorageError(
            f"there are files that belong to no run and would be replaced, such as {min(names)}",
            where=storage.uri,
            remedy="Choose an empty path, such as a subfolder, or remove the files",
        )


def refuse_present(storage: Storage) -> None:
    """Refuse a path that holds a run with checkpoints.

    Raises:
        StorageError: it does.
    """
    if _has_checkpoints(storage.files()):
        raise StorageError(
            "there is already a run",
            where=storage.uri,
            remedy="Resume it with --resume, replace it with --overwrite, or choose another path",
        )


def continue_from(
    storage: Storage,
    run_dir: Path,
    config: Mapping[str, Any],
    check: Callable[[], None] = lambda: None,
) -> int | None:
    """Prepare `run_dir` for resuming the run that the storage holds, if it holds one.

    The run is restored into an empty directory, or over a run without a checkpoint; a run with
    checkpoints is not changed.

    Args:
        config: the required resolved configuration, plain JSON data.
        check: called before each file; may raise.

    Returns:
        The number of files fetched; None if none had to be.

    Raises:
        CheckpointError: another configuration, no intact checkpoint on the storage, the storage is
            ahead of the directory, the directory holds other files than a run's, or another process
            trains there.
        StorageError: the storage fails.
    """
    files = {name: size for name, size in storage.files().items() if is_of_run(name)}
    if CONFIG_FILE not in files or not _has_checkpoints(files):
        return None
    refuse_changed(stored_config(storage) or {}, config, storage.uri)
    if checkpoint_steps(run_dir):
        _check_not_ahead(storage, run_dir)
        return None
    run_dir = run_dir.absolute()
    remedy = "Choose a directory that can be written, on a disk with free space"
    with disk_errors(run_dir, "the run could not be restored here", remedy):
        check_free(run_dir)
        run_dir.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{run_dir.name}-", dir=run_dir.parent) as new:
            for name, size in sorted(files.items()):
                check()
                storage.download(name, Path(new, name), size)
            load_checkpoint(Path(new))  # verifies checksums before anything local is changed
            _move_in(Path(new), run_dir)
    return len(files)


def _has_checkpoints(files: Mapping[str, int]) -> bool:
    return any(name.startswith("checkpoints/") and name.endswith(STATE_FILE) for name in files)


def stored_config(storage: Storage) -> dict[str, Any] | None:
    """The configuration of the run that a storage holds, as plain JSON data; None without a run.

    Raises:
        CheckpointError: it was not written by rss-rl.
        StorageError: the storage fails.
    """
    content = storage.read(CONFIG_FILE)
    if content is None:
        return None
    record = json_object(content)
    config = record.get("config")
    if not isinstance(config, dict) or not isinstance(record.get("schema_version"), int):
        raise CheckpointError(
            "not the configuration of a run",
            where=f"{storage.uri}/{CONFIG_FILE}",
            remedy="Choose another path, or delete its content",
        )
    return config


def _check_not_ahead(storage: Storage, run_dir: Path) -> None:
    """Refuse to resume from a state older than the storage's: later work would be lost."""
    if (run_dir / REPORT_FILE).is_file():
        return  # finished: its best checkpoint is all that it has
    there = storage.read(_LATEST) or b""
    try:
        ahead = parse_step(there.decode().strip()) - parse_step(read_pointer(run_dir, LATEST))
    except (ValueError, CheckpointError):
        return
    if ahead > 0:
        raise CheckpointError(
            f"the storage {storage.uri} is {ahead} updates ahead of the directory",
            where=str(run_dir),
            remedy="Resume into an empty --out, which is then restored from the storage",
        )


def _move_in(staging: Path, run_dir: Path) -> None:
    """Move the files and folders into the run directory, under its lock.

    The configuration is first, so that an interruption leaves a recognisable run; the checkpoints
    are last, as without them the run is restored again.
    """
    lock = claim(run_dir)
    try:
        pieces = staging.iterdir()
        for piece in sorted(pieces, key=lambda p: (p.name == "checkpoints", p.name != CONFIG_FILE)):
            os.replace(piece, run_dir / piece.name)
    finally:
        os.close(lock)
