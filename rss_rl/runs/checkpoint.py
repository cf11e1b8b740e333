"""Checkpoints: a directory each, complete or absent, safetensors and JSON, nothing unpickled.

    run/checkpoints/step-000123/tensors.safetensors   every tensor, optimiser and RNG included
    run/checkpoints/step-000123/state.json            counters, and the checksums of both
    run/checkpoints/LATEST, BEST, ...                 one line each, the name of a directory

A directory is written under a temporary name, synced and renamed, and only then pointed to: after
a kill or a full disk at any moment the last complete checkpoint can be loaded. One process writes
(`RunDirectory` holds the lock); any number read.
"""

from __future__ import annotations

__all__ = ["Checkpoint", "checkpoint_steps", "load_checkpoint", "mark_best", "save_checkpoint"]

import hashlib
import logging
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from rss_rl.durable import replace_file
from rss_rl.errors import CheckpointError
from rss_rl.json_files import canonical_json, read_json
from rss_rl.runs.checkpoint_files import (
    STATE_FILE,
    TENSORS_FILE,
    check_own,
    checkpoints_directory,
    install,
    parse_step,
    pointer_path,
    prune,
    read_pointer,
    staging,
    step_directory,
    step_of,
    steps_present,
    tensors_name,
    tensors_path,
)
from rss_rl.runs.tensor_file import TensorLike, file_sha256, read_tensors, write_tensors
from rss_rl.types import Array

SCHEMA_VERSION = 1
LATEST = "latest"

_log = logging.getLogger("rss_rl.checkpoint")
_OTHER = "Choose another checkpoint of the run, or start the run again"


@dataclass(frozen=True)
class Checkpoint:
    """What one checkpoint holds.

    step      updates done when it was written
    tensors   writable arrays by name, dtypes and shapes as saved
    state     the JSON object as saved
    path      its directory
    warnings  what was passed over to get here: damaged newer checkpoints, a missing pointer
    """

    step: int
    tensors: dict[str, Array]
    state: dict[str, Any]
    path: Path
    warnings: tuple[str, ...] = ()


def save_checkpoint(
    run_dir: Path,
    step: int,
    tensors: Mapping[str, TensorLike],
    state: dict[str, Any],
    *,
    keep_last: int,
) -> Path:
    """Write the checkpoint of `step`, point LATEST to it, and drop the old ones.

    Kept are the `keep_last` newest up to `step` and every one that is marked; later steps, left
    over from before a resume, go.

    Args:
        run_dir: the run directory; `checkpoints` is made where missing.
        step: updates done, not negative.
        tensors: NumPy arrays or torch tensors, any device and strides; bool, integers, floats.
        state: plain JSON data that reads back equal.
        keep_last: at least 1.

    Returns:
        The directory of the checkpoint.

    Raises:
        CheckpointError: `state` or a tensor cannot be saved exactly, or the disk refuses; the
            checkpoints that were there can still be loaded.
    """
    if step < 0 or keep_last < 1:
        raise ValueError(f"step {step} must be >= 0 and keep_last {keep_last} >= 1")
    final = step_directory(run_dir, step)
    text = canonical_json(state, where=str(final))
    try:
        final.parent.mkdir(parents=True, exist_ok=True)
        with staging(final) as temporary:
            digest = write_tensors(temporary / TENSORS_FILE, tensors)
            name = tensors_name(final, digest)
            os.rename(temporary / TENSORS_FILE, temporary / name)
            record = {
                "schema_version": SCHEMA_VERSION,
                "step": step,
                "tensors_file": name,
                "tensors_sha256": digest,
                "state_sha256": _text_sha256(text),
                "state": state,
            }
            replace_file(temporary / STATE_FILE, canonical_json(record, where=str(final)))
            # The safetensors writer makes files that only their owner can read.
            shutil.copymode(temporary / STATE_FILE, temporary / name)
            install(temporary, final, name)
        replace_file(pointer_path(run_dir, LATEST), f"{final.name}\n")
        prune(run_dir, step, keep_last)
    except (OSError, SafetensorError) as error:
        raise CheckpointError(
            f"the checkpoint of step {step} could not be written: {error}",
            where=str(final),
            remedy="The checkpoints before it are intact: free disk space and resume the run",
        ) from error
    return final


def mark_best(run_dir: Path, step: int, name: str = "best") -> None:
    """Point to the checkpoint of `step` under `name`, in the place of any other, and so keep it.

    Raises:
        CheckpointError: there is no such checkpoint, or the pointer cannot be written.
    """
    if name == LATEST:
        raise ValueError("'latest' is moved by save_checkpoint")
    path = step_directory(run_dir, step)
    if not (path / STATE_FILE).is_file():
        raise _absent(path, run_dir)
    try:
        replace_file(pointer_path(run_dir, name), f"{path.name}\n")
    except OSError as error:
        raise CheckpointError(
            f"the mark '{name}' could not be written: {error}",
            where=str(pointer_path(run_dir, name)),
            remedy="Free disk space and resume the run",
        ) from error


def checkpoint_steps(run_dir: Path) -> list[int]:
    """Steps that have a checkpoint, in order; nothing is said about whether it is sound."""
    return steps_present(run_dir)


def load_checkpoint(path: Path, which: str | int = LATEST) -> Checkpoint:
    """Read a checkpoint and check it against its checksums.

    Args:
        path: a run directory, or the directory of one checkpoint.
        which: in a run directory: `latest`, a mark such as `best`, or a step. For `latest` alone a
            damaged checkpoint is passed over for the newest sound one before it, with a warning.

    Raises:
        CheckpointError: there is none, or it is damaged or not one of ours.
    """
    if (path / STATE_FILE).is_file():
        return _read(path)
    if isinstance(which, int):
        return _read_present(step_directory(path, which), path)
    if which != LATEST:
        return _read_present(checkpoints_directory(path) / read_pointer(path, which), path)
    return _read_newest(path)


def _read_newest(run_dir: Path) -> Checkpoint:
    """The checkpoint LATEST points to, else the newest sound one before it."""
    steps = steps_present(run_dir)
    warnings: list[str] = []
    if not pointer_path(run_dir, LATEST).is_file() and steps:
        warnings.append(f"{pointer_path(run_dir, LATEST)}: missing; took the newest checkpoint")
        newest = steps[-1]
    else:
        newest = parse_step(read_pointer(run_dir, LATEST))
    for step in sorted({newest, *(s for s in steps if s < newest)}, reverse=True):
        try:
            found = _read_present(step_directory(run_dir, step), run_dir)
        except CheckpointError as error:
            # Its remedy is for whoever asked for this one.
            warnings.append(
                f"passed over the checkpoint of step {step}: {error.where}: {error.what}"
            )
            continue
        for warning in warnings:
            _log.warning("%s", warning)
        return Checkpoint(found.step, found.tensors, found.state, found.path, tuple(warnings))
    raise CheckpointError(
        f"no sound checkpoint; {'; '.join(warnings)}",
        where=str(checkpoints_directory(run_dir)),
        remedy="Where it trained with --storage, resume into an empty --run-dir, which gets the"
        " storage's copy; else start the run again in a new directory",
    )


def _read_present(path: Path, run_dir: Path) -> Checkpoint:
    if not path.is_dir():
        raise _absent(path, run_dir)
    return _read(path)


def _read(path: Path) -> Checkpoint:
    """Read and check the checkpoint in the directory `path`."""
    check_own(path, path / STATE_FILE)
    record = read_json(path / STATE_FILE, remedy=_OTHER)
    version, step, state = (record.get(key) for key in ("schema_version", "step", "state"))
    if type(version) is not int or version != SCHEMA_VERSION:
        raise CheckpointError(
            f"schema version {version!r}, this program reads {SCHEMA_VERSION}",
            where=str(path / STATE_FILE),
            remedy="Use the version of rss-rl that wrote it",
        )
    file = tensors_path(path, record.get("tensors_file"))
    if type(step) is not int or step < 0 or not isinstance(state, dict) or file is None:
        raise CheckpointError(
            "'step', 'state' or 'tensors_file' is not as written by rss-rl",
            where=str(path / STATE_FILE),
            remedy=_OTHER,
        )
    check_own(path, file)
    named = step_of(path)
    if named is not None and named != step:
        raise CheckpointError(
            f"it says that it is of step {step}", where=str(path / STATE_FILE), remedy=_OTHER
        )
    text = canonical_json(state, where=str(path / STATE_FILE))
    _check_digest(record.get("state_sha256"), _text_sha256(text), path / STATE_FILE)
    try:
        digest = file_sha256(file)
    except OSError as error:
        raise CheckpointError(f"unreadable: {error}", where=str(file), remedy=_OTHER) from error
    _check_digest(record.get("tensors_sha256"), digest, file)
    return Checkpoint(step, read_tensors(file, _OTHER), state, path)


def _check_digest(recorded: object, found: str, file: Path) -> None:
    if recorded != found:
        raise CheckpointError(
            "its SHA-256 is not the recorded one: the file is damaged",
            where=str(file),
            remedy=_OTHER,
        )


def _text_sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _absent(path: Path, run_dir: Path) -> CheckpointError:
    steps = ", ".join(map(str, steps_present(run_dir))) or "none"
    return CheckpointError(
        "there is no such checkpoint", where=str(path), remedy=f"Steps present: {steps}"
    )
