"""Checkpoints: one directory each, complete or absent, of safetensors and JSON without pickle.

    run/checkpoints/step-000123/tensors-DIGEST.safetensors   every tensor: weights, optimiser, RNG
    run/checkpoints/step-000123/state.json                   counters, and the checksums of both
    run/checkpoints/LATEST, BEST, ...                        one line each, a directory's name

A directory is written under a temporary name, synced, renamed, and only then pointed to: after a
kill or a full disk at any moment, the last complete checkpoint can be loaded. One process writes
(`RunDirectory` holds the lock); any number may read.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from rss_rl.durable import disk_errors, file_sha256, plain_bytes, replace_file, sync_directory
from rss_rl.errors import CheckpointError
from rss_rl.json_files import canonical_json, read_record
from rss_rl.runs.tensor_file import TensorLike, read_tensors, write_tensors
from rss_rl.types import Array

SCHEMA_VERSION = 1
BEST, LATEST = "best", "latest"
STATE_FILE = "state.json"
_UNNAMED = "tensors"
_STEP = re.compile(r"step-(\d{6,18})")
_POINTER = re.compile(r"[A-Z][A-Z0-9_]*")
_TENSORS = re.compile(r"tensors-[0-9a-f]{16}\.safetensors")
_LONGEST_POINTER = 64
_REMEDY = "Choose another checkpoint of the run, or start the run again"
_log = logging.getLogger("rss_rl.checkpoint")


@dataclass(frozen=True)
class Checkpoint:
    """The content of one checkpoint.

    step      updates done when it was written
    tensors   writable arrays by name, dtypes and shapes as saved
    state     the JSON object as saved
    path      its directory
    warnings  problems while it was found: damaged newer checkpoints, a missing pointer
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
    """Write the checkpoint of `step`, point LATEST to it, and delete old ones.

    Kept are the `keep_last` newest up to `step` and all marked ones; later steps, left over from
    before a resume, are deleted.

    Args:
        run_dir: the run directory; `checkpoints` is created if missing.
        step: updates done, not negative.
        tensors: NumPy arrays or torch tensors, any device and strides; bool, integers, floats.
        state: plain JSON data that reads back equal.
        keep_last: at least 1.

    Returns:
        The directory of the checkpoint.

    Raises:
        CheckpointError: `state` or a tensor cannot be saved exactly, or writing fails; existing
            checkpoints can still be loaded.
    """
    final = step_directory(run_dir, step)
    with _writing(final):
        _write(final, step, tensors, state)
        replace_file(pointer_path(run_dir, LATEST), f"{final.name}\n")
        _prune(run_dir, step, keep_last)
    return final


def _writing(final: Path) -> AbstractContextManager[None]:
    remedy = "The checkpoints before it are intact: free disk space and resume the run"
    what = "the checkpoint could not be written"
    return disk_errors(final, what, remedy, also=(SafetensorError,))


def _write(
    final: Path, step: int, tensors: Mapping[str, TensorLike], state: dict[str, Any]
) -> None:
    """The directory of a checkpoint, whole or not at all."""
    text = canonical_json(state, where=str(final))
    final.parent.mkdir(parents=True, exist_ok=True)
    with _staging(final) as temporary:
        digest = write_tensors(temporary / _UNNAMED, tensors)
        # If the step is saved again, the directory briefly holds both tensors files, until the
        # new state replaces the old one.
        name = f"tensors-{digest[:16]}.safetensors"
        os.rename(temporary / _UNNAMED, temporary / name)
        record = {
            "schema_version": SCHEMA_VERSION,
            "step": step,
            "tensors_file": name,
            "tensors_sha256": digest,
            "state_sha256": _text_sha256(text),
            "state": state,
        }
        replace_file(temporary / STATE_FILE, canonical_json(record, where=str(final)))
        # The safetensors writer creates files that only their owner can read.
        shutil.copymode(temporary / STATE_FILE, temporary / name)
        _install(temporary, final, name)


def keep_tensors(run_dir: Path, mark: str, prefixes: tuple[str, ...]) -> None:
    """Reduce a marked checkpoint to the tensors whose names begin so.

    Not the newest, from which a run resumes.

    Raises:
        CheckpointError: there is no such checkpoint, or writing fails.
    """
    if read_pointer(run_dir, mark) != read_pointer(run_dir, LATEST):
        _reduce(load_checkpoint(run_dir, mark), prefixes)


def _reduce(checkpoint: Checkpoint, prefixes: tuple[str, ...]) -> None:
    kept = {name: value for name, value in checkpoint.tensors.items() if name.startswith(prefixes)}
    if len(kept) < len(checkpoint.tensors):
        with _writing(checkpoint.path):
            _write(checkpoint.path, checkpoint.step, kept, checkpoint.state)


def keep_best(run_dir: Path, prefixes: tuple[str, ...]) -> None:
    """Leave of a finished run its best checkpoint alone, with the tensors whose names begin so.

    LATEST names it, too.

    Raises:
        CheckpointError: no checkpoint is marked as the best, or writing fails.
    """
    best = load_checkpoint(run_dir, BEST)
    _reduce(best, prefixes)
    with _writing(best.path):
        replace_file(pointer_path(run_dir, LATEST), f"{best.path.name}\n")
        for pointer in _pointers(run_dir):
            if pointer.name.lower() not in (BEST, LATEST):
                pointer.unlink()
        _prune(run_dir, best.step, keep_last=1)


def mark_checkpoint(run_dir: Path, step: int, name: str = "best") -> None:
    """Mark the checkpoint of `step` with `name`, such as `best`, which protects it from pruning.

    The checkpoint that had this mark before loses it, and may be pruned.

    Raises:
        CheckpointError: there is no such checkpoint, or the pointer cannot be written.
    """
    path = step_directory(run_dir, step)
    if not (path / STATE_FILE).is_file():
        raise _absent(path, run_dir)
    pointer = pointer_path(run_dir, name)
    remedy = "Free disk space and resume the run"
    with disk_errors(pointer, f"the mark '{name}' could not be written", remedy):
        replace_file(pointer, f"{path.name}\n")


def checkpoint_steps(run_dir: Path) -> list[int]:
    """Steps that have a checkpoint, intact or damaged, in order."""
    try:
        names = os.listdir(_checkpoints(run_dir))
    except (FileNotFoundError, NotADirectoryError):
        return []
    return sorted(int(match[1]) for name in names if (match := _STEP.fullmatch(name)))


def load_checkpoint(run_dir: Path, which: str | int = LATEST) -> Checkpoint:
    """Read a checkpoint and check it against its checksums.

    Args:
        which: `latest`, a mark such as `best`, or a step. Only for `latest`, a damaged checkpoint
            is skipped with a warning, for the newest intact one before it.

    Raises:
        CheckpointError: there is none, or it is damaged or was not written by rss-rl.
    """
    if which == LATEST:
        return _read_newest(run_dir)
    step = which if isinstance(which, int) else parse_step(read_pointer(run_dir, which))
    return _read(run_dir, step)


def _read_newest(run_dir: Path) -> Checkpoint:
    """The checkpoint that LATEST points to, else the newest intact one before it."""
    steps = checkpoint_steps(run_dir)
    warnings: list[str] = []
    if not pointer_path(run_dir, LATEST).is_file() and steps:
        warnings.append(f"{pointer_path(run_dir, LATEST)}: missing; took the newest checkpoint")
        newest = steps[-1]
    else:
        newest = parse_step(read_pointer(run_dir, LATEST))
    for step in sorted({newest, *(s for s in steps if s < newest)}, reverse=True):
        try:
            checkpoint = _read(run_dir, step)
        except CheckpointError as error:
            # Without the remedy, which is for callers that named this checkpoint.
            warnings.append(
                f"passed over the checkpoint of step {step}: {error.where}: {error.what}"
            )
            continue
        for warning in warnings:
            _log.warning("%s", warning)
        return replace(checkpoint, warnings=tuple(warnings))
    raise CheckpointError(
        f"no sound checkpoint; {'; '.join(warnings)}",
        where=str(_checkpoints(run_dir)),
        remedy="Where it trained with --storage, resume into an empty --out, which gets the"
        " storage's copy; else start the run again in a new directory",
    )


def _read(run_dir: Path, step: int) -> Checkpoint:
    """Read and check the checkpoint of a step."""
    path = step_directory(run_dir, step)
    if not path.is_dir():
        raise _absent(path, run_dir)
    state_file = path / STATE_FILE
    record = read_record(state_file, SCHEMA_VERSION, _REMEDY)
    state = record.get("state")
    file = tensors_path(path, record.get("tensors_file"))
    if record.get("step") != step or not isinstance(state, dict) or file is None:
        raise _damaged("'step', 'state' or 'tensors_file' is not as written by rss-rl", state_file)
    text = canonical_json(state, where=str(state_file))
    _check_digest(record.get("state_sha256"), _text_sha256(text), state_file)
    with disk_errors(file, "unreadable", _REMEDY):
        digest = file_sha256(file)
    _check_digest(record.get("tensors_sha256"), digest, file)
    return Checkpoint(step, read_tensors(file, _REMEDY), state, path)


def _check_digest(recorded: object, digest: str, file: Path) -> None:
    if recorded != digest:
        raise _damaged("its SHA-256 is not the recorded one: the file is damaged", file)


def _damaged(what: str, file: Path) -> CheckpointError:
    return CheckpointError(what, where=str(file), remedy=_REMEDY)


def _text_sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _absent(path: Path, run_dir: Path) -> CheckpointError:
    steps = ", ".join(map(str, checkpoint_steps(run_dir))) or "none"
    return CheckpointError(
        "there is no such checkpoint", where=str(path), remedy=f"Steps present: {steps}"
    )


@contextmanager
def state_errors(checkpoint: Checkpoint | None) -> Iterator[None]:
    """Turns errors caused by a state that does not fit the run into CheckpointErrors.

    Checksums detect damage, but not state of another program. None, for a new run, does nothing.
    """
    if checkpoint is None:
        yield
        return
    file = checkpoint.path / STATE_FILE
    try:
        yield
    except CheckpointError as error:
        raise CheckpointError(
            error.what, where=error.where or str(file), remedy=error.remedy or _REMEDY
        ) from error
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError) as error:
        what = f"its state does not fit this run: {type(error).__name__}: {str(error)[:200]}"
        raise _damaged(what, file) from error


def _checkpoints(run_dir: Path) -> Path:
    """The directory of a run's checkpoints."""
    return run_dir / "checkpoints"


def step_directory(run_dir: Path, step: int) -> Path:
    """The directory of the checkpoint of `step`."""
    return _checkpoints(run_dir) / f"step-{step:06d}"


def parse_step(name: str) -> int:
    """The step in the name of a checkpoint directory."""
    match = _STEP.fullmatch(name)
    if match is None:
        raise ValueError(f"{name!r} is not the name of a checkpoint")
    return int(match[1])


def pointer_path(run_dir: Path, name: str) -> Path:
    """The file that holds the name of the checkpoint called `name`, such as `best`."""
    if _POINTER.fullmatch(name.upper()) is None:
        raise CheckpointError(
            f"{name!r} cannot be the name of a checkpoint",
            where=str(run_dir),
            remedy="Use latest, best or a step",
        )
    return _checkpoints(run_dir) / name.upper()


def read_pointer(run_dir: Path, name: str) -> str:
    """The name of the checkpoint directory that `name` points to; never a path.

    Raises:
        CheckpointError: no such pointer, or it does not contain the name of a checkpoint.
    """
    path = pointer_path(run_dir, name)
    steps = ", ".join(map(str, checkpoint_steps(run_dir))) or "none"
    try:
        target = plain_bytes(path, _LONGEST_POINTER).decode().removesuffix("\n")
        parse_step(target)
    except FileNotFoundError as error:
        raise CheckpointError(
            f"the run has no checkpoint '{name}'",
            where=str(path),
            remedy="The best is marked in the last phase of a run: finish it with --resume, or use"
            f" latest or a step. Steps present: {steps}",
        ) from error
    except (OSError, ValueError) as error:
        raise CheckpointError(
            f"does not name a checkpoint: {error}",
            where=str(path),
            remedy=f"Write one line into it, 'step-' and six digits. Steps present: {steps}",
        ) from error
    return target


@contextmanager
def _staging(final: Path) -> Iterator[Path]:
    """A temporary directory beside `final` to build it in; deleted on exit."""
    _remove_leftovers(final.parent)
    temporary = final.with_name(f".tmp-{final.name}-{os.getpid()}")
    temporary.mkdir()
    try:
        yield temporary
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def tensors_path(final: Path, name: object) -> Path | None:
    """The tensors file `name` of `final`; None if rss-rl does not write files of that name."""
    return final / name if isinstance(name, str) and _TENSORS.fullmatch(name) else None


def _install(temporary: Path, final: Path, tensors: str) -> None:
    """Atomically make the finished directory `temporary` the checkpoint `final`.

    Args:
        temporary: holds the state and the tensors file.
        final: may exist; replacing its state is then the atomic step.
        tensors: name of the tensors file.
    """
    sync_directory(temporary)
    if not final.exists():
        os.rename(temporary, final)
        sync_directory(final.parent)
        return
    os.replace(temporary / tensors, final / tensors)
    sync_directory(final)
    os.replace(temporary / STATE_FILE, final / STATE_FILE)
    sync_directory(final)
    for path in final.glob("tensors*.safetensors"):
        if path.name != tensors:
            path.unlink()


def _prune(run_dir: Path, step: int, keep_last: int) -> None:
    """Remove all but the marked checkpoints and the `keep_last` newest up to `step`."""
    present = checkpoint_steps(run_dir)
    kept = {*[s for s in present if s <= step][-keep_last:], *_pointed_to(run_dir)}
    for old in sorted({*present} - kept):
        _discard(step_directory(run_dir, old))


def _pointed_to(run_dir: Path) -> set[int]:
    """Steps that a pointer names; damaged pointers are ignored."""
    steps = set()
    for path in _pointers(run_dir):
        with suppress(CheckpointError):
            steps.add(parse_step(read_pointer(run_dir, path.name)))
    return steps


def _pointers(run_dir: Path) -> list[Path]:
    """Files of LATEST and all marks."""
    entries = _checkpoints(run_dir).iterdir()
    return [path for path in entries if _POINTER.fullmatch(path.name) and path.is_file()]


def _discard(path: Path) -> None:
    """Delete a checkpoint; it is renamed first, so that no half-deleted one can be loaded."""
    temporary = path.with_name(f".tmp-old-{path.name}-{os.getpid()}")
    os.rename(path, temporary)
    shutil.rmtree(temporary, ignore_errors=True)


def _remove_leftovers(directory: Path) -> None:
    """Delete what a killed process left; the run's lock guarantees that no other is writing."""
    for path in directory.glob(".tmp-*"):
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
