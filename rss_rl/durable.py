"""Writing files and directories so that a kill or a power cut leaves them intact.

Not every filesystem can exchange directories atomically, so the old one is first moved to a name
where the next process can find it.
"""

from __future__ import annotations

import errno
import fcntl
import glob
import hashlib
import logging
import os
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path

from rss_rl.errors import CheckpointError, RssError

_log = logging.getLogger("rss_rl.durable")


def check_file(path: Path) -> None:
    """Refuse what would be waited for, or read without end.

    Raises:
        OSError: it is a pipe, a socket or a device.
    """
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise OSError(errno.EINVAL, "a pipe or a device, not a file")


def file_sha256(path: Path) -> str:
    """The SHA-256 of a file, in hexadecimal.

    Raises:
        OSError: see `check_file` and `open`.
    """
    check_file(path)
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def plain_bytes(path: Path, most: int) -> bytes:
    """The content of a regular file; opening a pipe blocks, reading a device never ends.

    Raises:
        ValueError: it is not a regular file, or has more than `most` bytes. OSError: see `open`.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise ValueError("not a plain file")
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            content = file.read(most + 1)
    finally:
        os.close(descriptor)
    if len(content) > most:
        raise ValueError(f"larger than {most} bytes")
    return content


def is_same_file(one: Path, other: Path) -> bool:
    """Whether two paths, links followed, are the same existing file."""
    try:
        return one.samefile(other)
    except OSError:  # one is missing or a dangling link
        return False


def sync_file(path: Path) -> None:
    """Wait until the bytes of `path` are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_directory(path: Path) -> None:
    """Wait until the entries of the directory `path` are on the disk."""
    sync_file(path)


def as_text(name: str) -> str:
    """The name of a file as text that can be written: its bytes need not be UTF-8."""
    return os.fsencode(name).decode(errors="replace")


@contextmanager
def disk_errors(
    where: Path, what: str, remedy: str, kind: type[RssError] = CheckpointError
) -> Iterator[None]:
    """Re-raise an OSError of the block, or a path that it cannot encode, as an `RssError`.

    Args:
        where: the file or directory. what: the failure, such as "cannot be written".

    Raises:
        RssError: of the given kind.
    """
    try:
        yield
    except (OSError, UnicodeEncodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise kind(f"{what}: {reason}", where=str(where), remedy=remedy) from error


@contextmanager
def file_lock(
    path: Path,
    busy: RssError | Callable[[], None],
    opening: AbstractContextManager[None] | None = None,
) -> Iterator[None]:
    """Hold an exclusive lock on a file; does nothing on a filesystem without locks.

    The file is created if missing. The kernel releases the lock when the process ends in any way.

    Args:
        busy: an error to raise if another process holds the lock, or a function to call before
            waiting for it.
        opening: the context in which the file is opened, such as `disk_errors`.

    Raises:
        OSError: the file cannot be created.
    """
    with opening or nullcontext():
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
    """A temporary file beside `path`, which it replaces atomically unless the block raises.

    Raises:
        OSError: the disk refuses; `path` is unchanged.
    """
    temporary = path.with_name(f".tmp-{path.name}-{os.getpid()}")
    try:
        yield temporary
        sync_file(temporary)
        os.replace(temporary, path)
    finally:
        with suppress(OSError):  # which would hide the first error
            temporary.unlink(missing_ok=True)
    sync_directory(path.parent)


def remove_unfinished(path: Path) -> None:
    """Remove what killed processes left of `replacing` this file; no other may be writing it.

    Raises:
        OSError: the disk refuses.
    """
    for left in path.parent.glob(f".tmp-{glob.escape(path.name)}-*"):
        left.unlink(missing_ok=True)


def replace_file(path: Path, text: str) -> None:
    """Write `text` to `path`, as `replacing` does."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def aside_of(out: Path) -> Path:
    """Where `out` is kept while it is being replaced."""
    return out.with_name(f".replaced-{out.name}")


def put_back(out: Path) -> None:
    """Clean up after a killed `swap_in`: restore `out`, or remove the directory it replaced.

    Raises:
        OSError: the disk refuses.
    """
    aside = aside_of(out)
    if not aside.exists():
        return
    if out.exists():
        shutil.rmtree(aside)
        _log.warning("%s: removed; an interrupted replacement had left it", aside)
        return
    os.replace(aside, out)
    sync_directory(out.parent)
    _log.warning("%s: restored after an interrupted replacement", out)


def swap_in(staging: Path, out: Path) -> None:
    """Move `staging` to `out`, then remove the directory that it replaced.

    If killed in between, it leaves the old one at `aside_of(out)`, for `put_back`.

    Raises:
        OSError: the disk refuses; `out` is unchanged.
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
    shutil.rmtree(aside, ignore_errors=True)  # on failure the next `put_back` removes it
