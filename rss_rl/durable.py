"""Writing files and directories so that a kill or a power cut leaves them intact."""

from __future__ import annotations

import errno
import fcntl
import glob
import hashlib
import os
import re
import secrets
import shutil
import stat
import tempfile
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from pathlib import Path

from rss_rl.errors import CheckpointError, RssError


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
    with _opened(path, 0) as descriptor:
        return _content(descriptor, most)


def plain_bytes_inside(folder: Path, name: str, most: float) -> bytes:
    """As `plain_bytes`, of a file in a folder that may be anyone's: no link in it is followed.

    Args:
        name: relative, of plain names divided by `/`.

    Raises:
        ValueError: see `plain_bytes`; or the name leads elsewhere. OSError: see `open`; a link.
    """
    *folders, last = name.split("/")
    with ExitStack() as opened:
        at = opened.enter_context(_opened(folder, os.O_DIRECTORY))
        for part in folders:
            flags = os.O_DIRECTORY | os.O_NOFOLLOW
            at = opened.enter_context(_opened(plain_name(part), flags, at))
        return _content(opened.enter_context(_opened(plain_name(last), os.O_NOFOLLOW, at)), most)


def plain_name(name: str) -> str:
    """The name of an entry of a folder, as it is.

    Raises:
        ValueError: it leads elsewhere, or to the folder itself.
    """
    if name in ("", ".", "..") or set(name) & set("/\\\0"):
        raise ValueError(f"{name!r:.100} is no plain name")
    return name


@contextmanager
def _opened(path: Path | str, flags: int, at: int | None = None) -> Iterator[int]:
    flags |= os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
    descriptor = os.open(path, flags, dir_fd=at)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _content(descriptor: int, most: float) -> bytes:
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        raise ValueError("not a plain file")
    if status.st_size > most:
        raise ValueError(f"larger than {most:.0f} bytes")
    with os.fdopen(descriptor, "rb", closefd=False) as file:
        return file.read(status.st_size)


def refuse_links(folder: Path, within: Collection[str] = ()) -> None:
    """Refuse a folder to write to where something in it is a link, a pipe or a device.

    Args:
        within: names of its folders that are looked at, too, with all that they hold.

    Raises:
        CheckpointError: names it.
    """
    for parent, folders, files in os.walk(folder):
        for path in (Path(parent, name) for name in (*folders, *files)):
            with suppress(FileNotFoundError):  # deleted meanwhile
                mode = path.lstat().st_mode
                if not (stat.S_ISDIR(mode) or stat.S_ISREG(mode)):
                    raise CheckpointError(
                        "a link, a pipe or a device, by which writing would leave the directory",
                        where=str(path),
                        remedy="Remove it, or put a copy of its target in its place",
                    )
        if parent == str(folder):
            folders[:] = [name for name in folders if name in within]


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
    where: Path,
    what: str,
    remedy: str,
    kind: type[RssError] = CheckpointError,
    also: tuple[type[Exception], ...] = (),
) -> Iterator[None]:
    """Re-raise an OSError of the block, or a path that it cannot encode, as an `RssError`.

    Args:
        where: the file or directory. what: the failure, such as "cannot be written".
        also: what a library raises for damaged files.

    Raises:
        RssError: of the given kind.
    """
    expected: tuple[type[Exception], ...] = (OSError, UnicodeEncodeError, *also)
    try:
        yield
    except expected as error:
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

    It is locked meanwhile, so that `remove_unfinished` knows that its writer lives.

    Raises:
        OSError: the disk refuses; `path` is unchanged.
    """
    temporary = path.with_name(f".tmp-{path.name}-{secrets.randbits(32)}")
    try:
        temporary.touch()
        with file_lock(temporary, lambda: None):
            yield temporary
            sync_file(temporary)
            os.replace(temporary, path)
    finally:
        with suppress(OSError):  # which would hide the first error
            temporary.unlink(missing_ok=True)
    sync_directory(path.parent)


def remove_unfinished(path: Path) -> None:
    """Remove what killed processes left of `replacing` this file."""
    for left in path.parent.glob(f".tmp-{glob.escape(path.name)}-*"):
        with suppress(OSError):  # its writer lives, or the filesystem cannot tell
            descriptor = os.open(left, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                left.unlink(missing_ok=True)
            finally:
                os.close(descriptor)


def replace_file(path: Path, text: str) -> None:
    """Write `text` to `path`, as `replacing` does."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


@contextmanager
def new_folder(out: Path) -> Iterator[Path]:
    """A new folder beside `out`, which it replaces when complete, unless the block raises.

    Its files have the modes of new files, and are on the disk before it appears. What a killed
    process left of another is removed; one that was killed between the two renames leaves the old
    folder in `.NAME-...`, until there is a new one.

    Args:
        out: absolute. Parents that are missing are made.

    Raises:
        OSError: the disk refuses; `out` is unchanged.
    """
    out.parent.mkdir(parents=True, exist_ok=True)
    _remove_dead(out)
    with (
        tempfile.TemporaryDirectory(
            prefix=f".{out.name}-", dir=out.parent, ignore_cleanup_errors=True
        ) as beside,
        _opened(beside, os.O_DIRECTORY) as descriptor,
    ):
        with suppress(OSError):  # a filesystem without locks
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        folder, old = Path(beside, "new"), Path(beside, "old")
        folder.mkdir()
        yield folder
        _settle(folder)
        if out.exists():
            os.replace(out, old)
        try:
            os.replace(folder, out)
        except OSError:
            if old.exists():
                os.replace(old, out)
            raise
        sync_directory(out.parent)


def _remove_dead(out: Path) -> None:
    """Remove what killed processes left of `new_folder`, but never the only copy of `out`."""
    pattern = re.compile(rf"\.{re.escape(out.name)}-\w{{8}}")
    for name in filter(pattern.fullmatch, os.listdir(out.parent)):
        with suppress(OSError), _opened(out.parent / name, os.O_DIRECTORY | os.O_NOFOLLOW) as left:
            fcntl.flock(left, fcntl.LOCK_EX | fcntl.LOCK_NB)  # fails if its writer lives
            held = {*os.listdir(left)}  # empty: its writer is about to lock it
            if held and held <= ({"new", "old"} if out.exists() else {"new"}):
                shutil.rmtree(out.parent / name)


def _settle(folder: Path) -> None:
    """Give the files of a folder the modes of new files, and wait until all is on the disk."""
    mode = folder.stat().st_mode & 0o666
    for parent, _, files in os.walk(folder):
        for name in files:
            os.chmod(Path(parent, name), mode)
            sync_file(Path(parent, name))
        sync_directory(Path(parent))
