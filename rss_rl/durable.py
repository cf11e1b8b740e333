"""What a kill or a power cut leaves whole: bytes and names on the disk, files and directories.

Directories cannot be exchanged in one step everywhere, so the old one steps aside first, under a
name that whoever comes next can find.
"""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rss_rl.errors import CheckpointError, RssError

_log = logging.getLogger("rss_rl.durable")


def file_sha256(path: Path) -> str:
    """The SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def is_same_file(one: Path, other: Path) -> bool:
    """Whether two names, links followed, mean one file that is there."""
    try:
        return one.samefile(other)
    except OSError:  # one is not there, or a link that leads nowhere
        return False


def sync_file(path: Path) -> None:
    """Wait until the bytes of `path` are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_directory(path: Path) -> None:
    """Wait until the names in the directory `path` are on the disk."""
    sync_file(path)


@contextmanager
def disk_errors(
    where: Path, what: str, remedy: str, kind: type[RssError] = CheckpointError
) -> Iterator[None]:
    """Raise what the disk refuses within as an error of ours.

    Args:
        where: the file or directory. what: went wrong, such as "cannot be written".

    Raises:
        RssError: of the given kind.
    """
    try:
        yield
    except OSError as error:
        reason = error.strerror or error
        raise kind(f"{what}: {reason}", where=str(where), remedy=remedy) from error


@contextmanager
def file_lock(path: Path, busy: RssError | Callable[[], None]) -> Iterator[None]:
    """Hold the lock of a file against other processes; a filesystem without locks holds none.

    The file is made where it is missing. The kernel releases it when the process ends, however.

    Args:
        busy: raised where another process holds it; or called, before this one waits for it.

    Raises:
        OSError: the file cannot be made.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if isinstance(busy, RssError):
                raise busy from None
            busy()
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        except OSError:
            pass
        yield
    finally:
        os.close(descriptor)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary file beside `path` to be written; it becomes `path` where nothing is raised.

    A reader sees all of the old or all of the new file.

    Raises:
        OSError: the disk refuses; `path` is as it was.
    """
    temporary = path.with_name(f".tmp-{path.name}-{os.getpid()}")
    try:
        yield temporary
        sync_file(temporary)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    sync_directory(path.parent)


def replace_file(path: Path, text: str) -> None:
    """Write `text` to `path`, as `replacing` does."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def aside_of(out: Path) -> Path:
    """Where `out` waits while another directory takes its place."""
    return out.with_name(f".replaced-{out.name}")


def put_back(out: Path) -> None:
    """Mend what a killed `swap_in` left: `out` comes back, or what it replaced is removed.

    Raises:
        OSError: the disk refuses.
    """
    aside = aside_of(out)
    if not aside.exists():
        return
    if out.exists():
        shutil.rmtree(aside)
        _log.warning("%s: removed, left by a replacement that was interrupted at its end", aside)
        return
    os.replace(aside, out)
    sync_directory(out.parent)
    _log.warning("%s: back in its place, which an interrupted replacement had left empty", out)


def swap_in(staging: Path, out: Path) -> None:
    """Make `staging` the directory `out`; one that is there is removed when that is done.

    Killed in between, it leaves the old one under `aside_of(out)`, for `put_back`.

    Raises:
        OSError: the disk refuses; `out` is as it was.
    """
    aside = aside_of(out)
    if out.exists():
        os.replace(out, aside)
    try:
        os.replace(staging, out)
    except OSError:
        if aside.exists():
            os.replace(aside, out)
        raise
    sync_directory(out.parent)
    shutil.rmtree(aside, ignore_errors=True)  # `out` is whole: the next `put_back` tries again
