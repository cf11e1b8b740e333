"""The lock of a run directory: held by the process that trains, asked about by everyone else."""

from __future__ import annotations

__all__ = ["LOCK_FILE", "lock_holder", "take_lock"]

import fcntl
import os
import socket
import stat
import time
from pathlib import Path

from rss_rl.errors import CheckpointError

LOCK_FILE = "run.lock"
_ATTEMPTS, _PAUSE_S = 5, 0.05
_LONGEST_HOLDER = 200


def take_lock(run_dir: Path) -> int:
    """Take the lock of the run; its file descriptor, which is closed to let go.

    The kernel lets go of it when the process ends, however it ends: a lock left by a dead process
    is free, and no process number has to be trusted.

    Raises:
        CheckpointError: another process trains there.
        OSError: the file cannot be used.
    """
    descriptor = _open(run_dir, os.O_RDWR | os.O_CREAT)
    try:
        for attempt in range(_ATTEMPTS):
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError as error:
                if attempt + 1 == _ATTEMPTS:
                    raise _held(run_dir, _holder(descriptor)) from error
                time.sleep(_PAUSE_S)  # somebody may only be asking, in `lock_holder`
        os.ftruncate(descriptor, 0)
        os.write(descriptor, f"process {os.getpid()} on {socket.gethostname()}\n".encode())
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def lock_holder(run_dir: Path) -> str | None:
    """Who trains there, as `process 12 on host`; None where nobody does.

    Raises:
        OSError: the file cannot be read.
    """
    try:
        descriptor = _open(run_dir, os.O_RDONLY)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _holder(descriptor)
    finally:
        os.close(descriptor)
    return None


def _open(run_dir: Path, flags: int) -> int:
    """Open the lock's file; a link would let a run directory name any file to be emptied."""
    guarded = flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    descriptor = os.open(run_dir / LOCK_FILE, guarded, 0o644)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(f"{run_dir / LOCK_FILE} is not a plain file")
    return descriptor


def _holder(descriptor: int) -> str:
    """What the holder wrote, whoever wrote it: shown on a terminal, so printable only."""
    text = os.pread(descriptor, _LONGEST_HOLDER, 0).decode(errors="replace")
    return "".join(c for c in text if c.isprintable()).strip() or "another process"


def _held(run_dir: Path, holder: str) -> CheckpointError:
    return CheckpointError(
        f"{holder} is training there",
        where=str(run_dir),
        remedy="Wait for it, stop it, or choose another directory",
    )
