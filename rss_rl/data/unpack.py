"""Unpacking an untrusted archive: only the requested members, and only regular files.

A name that leads out of the folder, a link or device in place of a file, or more bytes than the
dataset can have is an error before anything is put into the folder.
"""

from __future__ import annotations

import gzip
import io
import re
import shutil
import stat
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path, PurePosixPath
from typing import IO, cast

from rss_rl.data.catalogue import Unpack
from rss_rl.durable import disk_errors
from rss_rl.errors import DataError

_CHUNK = 1 << 20
_DAMAGED = (
    EOFError,
    NotImplementedError,
    RuntimeError,
    UnicodeError,
    gzip.BadGzipFile,
    tarfile.TarError,
    zipfile.BadZipFile,
    zlib.error,
)


def disk_refuses(path: Path) -> AbstractContextManager[None]:
    """Re-raise errors of the disk as a `DataError` with a remedy."""
    remedy = "Free disk space, or name another directory with --to"
    return disk_errors(path, "cannot be written", remedy, DataError)


def unpack(archive: Path, rule: Unpack, folder: Path) -> list[str]:
    """Unpack what `rule` names into `folder`, all or nothing; returns the names below `folder`.

    Raises:
        DataError: the archive is damaged, unsafe, too large or lacks files, or the disk refuses.
    """
    with disk_refuses(folder):
        staging = Path(tempfile.mkdtemp(prefix=".unpacking-", dir=folder))
    try:
        with _damage(archive):
            names = _take(archive, rule, staging)
        with disk_refuses(folder):
            for name in names:
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                (staging / name).replace(folder / name)
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    return names


_Member = tuple[str, bool, "IO[bytes] | None"]
"""A name, whether it is a regular file, and its bytes (None for a folder)."""


def _take(archive: Path, rule: Unpack, staging: Path) -> list[str]:
    """Check every member and write those that match a pattern into `staging`; their names there."""
    room, missing = rule.limit_mb * 10**6, set(rule.members)
    names: list[str] = []
    members = _zip(archive) if archive.suffix == ".zip" else _tar(archive, rule)
    for name, is_file, content in members:
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts or re.search(r"[\\:\0]", name):
            raise _refused(archive, f"holds the name {name!r}, which leads out of it")
        matching = {pattern for pattern in rule.members if path.match(pattern)}
        if content is None or not matching:
            continue
        if not is_file:
            raise _refused(archive, f"holds {name!r} as a link or device")
        target = staging / PurePosixPath(*path.parts[-rule.keep :])
        if target.exists() or len(names) >= rule.most:
            raise _refused(archive, f"holds {target.name} twice, or too many files")
        missing -= matching
        names.append(str(target.relative_to(staging)))
        with disk_refuses(target):
            target.parent.mkdir(parents=True, exist_ok=True)
            target.touch()
        while chunk := content.read(_CHUNK):
            room -= len(chunk)
            if room < 0:
                raise _too_large(archive, rule)
            with disk_refuses(target), target.open("ab") as file:
                file.write(chunk)
    if missing:
        raise _refused(archive, f"has no {', '.join(sorted(missing))}")
    return names


def _zip(archive: Path) -> Iterator[_Member]:
    with zipfile.ZipFile(archive) as package:
        for info in package.infolist():
            kind = stat.S_IFMT(info.external_attr >> 16)
            if info.is_dir():
                yield info.filename, False, None
                continue
            with package.open(info) as content:
                yield info.filename, kind in (0, stat.S_IFREG), content


def _tar(archive: Path, rule: Unpack) -> Iterator[_Member]:
    with gzip.open(archive) as packed:
        bounded = _Bounded(cast(IO[bytes], packed), archive, rule)
        with tarfile.open(fileobj=cast(IO[bytes], bounded), mode="r|") as package:
            for info in package:
                if info.isdir():
                    yield info.name, False, None
                elif info.isreg():
                    yield info.name, True, package.extractfile(info)
                else:
                    yield info.name, False, io.BytesIO()
        while bounded.read(_CHUNK):  # up to the checksum at the end
            pass


class _Bounded:
    """A decompressed stream, limited to what an archive may hold."""

    def __init__(self, stream: IO[bytes], archive: Path, rule: Unpack) -> None:
        self._stream, self._archive, self._rule = stream, archive, rule
        self._room = rule.limit_mb * 10**6

    def read(self, size: int) -> bytes:
        """The next bytes."""
        chunk = self._stream.read(size)
        self._room -= len(chunk)
        if self._room < 0:
            raise _too_large(self._archive, self._rule)
        return chunk


def _too_large(archive: Path, rule: Unpack) -> DataError:
    return _refused(archive, f"holds more than the {rule.limit_mb:,} MB that it may")


def _refused(archive: Path, what: str) -> DataError:
    return DataError(
        what, where=str(archive), remedy="This is not the published archive; nothing was unpacked"
    )


@contextmanager
def _damage(archive: Path) -> Iterator[None]:
    try:
        yield
    except _DAMAGED as error:
        raise DataError(
            f"is damaged or cut short ({error})",
            where=str(archive),
            remedy="Fetch it again with --force; nothing was unpacked",
        ) from error
    except OSError as error:
        raise DataError(
            f"cannot be read ({error.strerror or error})", where=str(archive)
        ) from error
