"""Names of checkpoints on disk: step directories, pointers, staging and pruning."""

from __future__ import annotations

__all__ = [
    "STATE_FILE",
    "TENSORS_FILE",
    "check_own",
    "checkpoints_directory",
    "install",
    "parse_step",
    "pointer_path",
    "prune",
    "read_pointer",
    "staging",
    "step_directory",
    "step_of",
    "steps_present",
    "tensors_name",
    "tensors_path",
]

import os
import re
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rss_rl.durable import sync_directory
from rss_rl.errors import CheckpointError

STATE_FILE = "state.json"
TENSORS_FILE = "tensors.safetensors"
_STEP = re.compile(r"step-(\d{6,18})")
_POINTER = re.compile(r"[A-Z][A-Z0-9_]*")
_TENSORS = re.compile(r"tensors(-[0-9a-f]{16})?\.safetensors")
_LONGEST_POINTER = 64


def checkpoints_directory(run_dir: Path) -> Path:
    """Where the checkpoints of a run are."""
    return run_dir / "checkpoints"


def step_directory(run_dir: Path, step: int) -> Path:
    """The directory of the checkpoint of `step`."""
    return checkpoints_directory(run_dir) / f"step-{step:06d}"


def parse_step(name: str) -> int:
    """The step that the name of a checkpoint directory says."""
    match = _STEP.fullmatch(name)
    if match is None:
        raise ValueError(f"{name!r} names no checkpoint")
    return int(match[1])


def step_of(path: Path) -> int | None:
    """The step that a checkpoint's directory is named after; None where it has another name."""
    match = _STEP.fullmatch(path.name)
    return None if match is None else int(match[1])


def pointer_path(run_dir: Path, name: str) -> Path:
    """The file that holds the name of the checkpoint called `name`, such as `best`."""
    if _POINTER.fullmatch(name.upper()) is None:
        raise CheckpointError(
            f"{name!r} cannot be the name of a checkpoint",
            where=str(run_dir),
            remedy="Ask for latest, best or a step",
        )
    return checkpoints_directory(run_dir) / name.upper()


def read_pointer(run_dir: Path, name: str) -> str:
    """The name of the checkpoint directory that `name` points to; never a path.

    Raises:
        CheckpointError: no such pointer, or its text is not one we wrote.
    """
    path = pointer_path(run_dir, name)
    steps = ", ".join(map(str, steps_present(run_dir))) or "none"
    check_own(path.parent, path)
    try:
        with path.open("rb") as file:
            target = file.read(_LONGEST_POINTER).decode().removesuffix("\n")
        parse_step(target)
    except FileNotFoundError as error:
        raise CheckpointError(
            f"the run has no checkpoint '{name}'",
            where=str(path),
            remedy="A run has its best from its last phase on: finish it with --resume, or ask for"
            f" latest or a step. Steps present: {steps}",
        ) from error
    except (OSError, ValueError) as error:
        raise CheckpointError(
            f"does not name a checkpoint: {error}",
            where=str(path),
            remedy=f"Write one line into it, 'step-' and six digits. Steps present: {steps}",
        ) from error
    return target


def steps_present(run_dir: Path) -> list[int]:
    """Steps that have a directory, in order."""
    try:
        names = os.listdir(checkpoints_directory(run_dir))
    except (FileNotFoundError, NotADirectoryError):
        return []
    return sorted(int(match[1]) for name in names if (match := _STEP.fullmatch(name)))


@contextmanager
def staging(final: Path) -> Iterator[Path]:
    """A fresh directory beside `final` to build it in; whatever is left of it goes at the end."""
    _remove_leftovers(final.parent)
    temporary = final.with_name(f".tmp-{final.name}-{os.getpid()}")
    temporary.mkdir()
    try:
        yield temporary
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def tensors_name(final: Path, digest: str) -> str:
    """The name of the tensors file to write for `final`.

    Where the step is saved a second time both tensors files lie side by side for a moment, until
    the new state replaces the old one: so the second gets a name of its own.
    """
    return f"tensors-{digest[:16]}.safetensors" if final.exists() else TENSORS_FILE


def check_own(directory: Path, *files: Path) -> None:
    """Refuse a checkpoint that lies elsewhere, and what is no plain file.

    rss-rl makes no links there: one leads out of the run, a pipe would be waited for, and a device
    read for ever. The run directory itself may be reached by any links.

    Raises:
        CheckpointError: naming the file.
    """
    for path in (directory, *files):
        try:
            mode = path.lstat().st_mode
        except OSError:
            continue  # missing, which whoever reads it says better
        if not (stat.S_ISDIR(mode) if path == directory else stat.S_ISREG(mode)):
            raise CheckpointError(
                "a link, or not a plain file",
                where=str(path),
                remedy="Put the file itself there, or choose another checkpoint of the run",
            )


def tensors_path(final: Path, name: object) -> Path | None:
    """The tensors file of `final` that its state calls `name`; None if that is no name of ours."""
    return final / name if isinstance(name, str) and _TENSORS.fullmatch(name) else None


def install(temporary: Path, final: Path, tensors: str) -> None:
    """Make the finished directory `temporary` the checkpoint `final`, at one stroke.

    Args:
        temporary: holds the state and the tensors file.
        final: may exist already; its state is then replaced, which is the stroke.
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


def prune(run_dir: Path, step: int, keep_last: int) -> None:
    """Remove all but the marked checkpoints and the `keep_last` newest up to `step`."""
    present = steps_present(run_dir)
    kept = {s for s in present if s <= step}
    kept = set(sorted(kept)[-keep_last:]) | _pointed_to(run_dir)
    for old in present:
        if old not in kept:
            _discard(step_directory(run_dir, old))


def _pointed_to(run_dir: Path) -> set[int]:
    """Steps that a pointer names; a damaged pointer protects nothing."""
    steps = set()
    for path in checkpoints_directory(run_dir).iterdir():
        if _POINTER.fullmatch(path.name) and path.is_file():
            try:
                steps.add(parse_step(read_pointer(run_dir, path.name)))
            except CheckpointError:
                continue
    return steps


def _discard(path: Path) -> None:
    """Remove a directory; it loses its name first, so that half of it never looks like a whole."""
    temporary = path.with_name(f".tmp-old-{path.name}-{os.getpid()}")
    os.rename(path, temporary)
    shutil.rmtree(temporary, ignore_errors=True)


def _remove_leftovers(directory: Path) -> None:
    """Remove what a killed process left; the run's lock says that no other one is writing."""
    for path in directory.glob(".tmp-*"):
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
