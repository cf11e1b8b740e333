"""Unpacking an untrusted archive: only the requested members, and only regular files.

A name that leads out of the folder, a link or device in place of a file, or more bytes than the
dataset can have is an error before anything is put into the folder.
"""

from __future__ import annotations

import gzip
import re
import stat
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import IO, Any

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
_Member = tuple[str, "IO[bytes] | None"]
"""A name, and its bytes (None for what is no regular file)."""


def unpack(archive: Path, rule: Unpack, folder: Path) -> list[str]:
    """Unpack what `rule` names into `folder`, all or nothing; returns the names below `folder`.

    Raises:
        DataError: the archive is damaged, unsafe, too large or lacks files, or the disk refuses.
    """
    full = "Free disk space, or name another directory with --to"
    with disk_errors(archive, "cannot be unpacked", full, DataError):
        with tempfile.TemporaryDirectory(prefix=".unpacking-", dir=folder) as staging:
            try:
                names = _take(archive, rule, Path(staging))
            except _DAMAGED as error:
                raise DataError(
                    f"is damaged or cut short ({error})",
                    where=str(archive),
                    remedy="Fetch it again with --force; nothing was unpacked",
                ) from error
            for name in names:
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                Path(staging, name).replace(folder / name)
        return names


def _take(archive: Path, rule: Unpack, staging: Path) -> list[str]:
    """Check every member and write those that match a pattern into `staging`; their names there."""
    room, missing = rule.limit_mb * 10**6, set(rule.members)
    names: list[str] = []
    for name, content in _zip(archive) if archive.suffix == ".zip" else _tar(archive):
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts or re.search(r"[\\:\0]", name):
            raise _refused(archive, f"holds the name {name!r}, which leads out of it")
        matching = {pattern for pattern in rule.members if path.match(pattern)}
        if not matching:
            continue
        if content is None:
            raise _refused(archive, f"holds {name!r} as a link or device")
        target = staging / PurePosixPath(*path.parts[-rule.keep :])
        if target.exists() or len(names) >= rule.most:
            raise _refused(archive, f"holds {target.name} twice, or too many files")
        missing -= matching
        names.append(str(target.relative_to(staging)))
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("wb") as file:
            while chunk := content.read(_CHUNK):
                room -= len(chunk)
                if room < 0:
                    raise _refused(archive, f"holds more than the {rule.limit_mb:,} MB that it may")
                file.write(chunk)
    if missing:
        raise _refused(archive, f"has no {', '.join(sorted(missing))}")
    return names


def _zip(archive: Path) -> Iterator[_Member]:
    with zipfile.ZipFile(archive) as package:
        for info in package.infolist():
            if not info.is_dir():
                plain = stat.S_IFMT(info.external_attr >> 16) in (0, stat.S_IFREG)
                with package.open(info) as content:
                    yield info.filename, content if plain else None


def _tar(archive: Path) -> Iterator[_Member]:
    with gzip.open(archive) as packed:
        stream: Any = packed
        with tarfile.open(fileobj=stream, mode="r|") as package:
            for info in package:
                if not info.isdir():
                    yield info.name, package.extractfile(info) if info.isreg() else None
        while packed.read(_CHUNK):  # up to the checksum at the end
            pass


def _refused(archive: Path, what: str) -> DataError:
    return DataError(
        what, where=str(archive), remedy="This is not the published archive; nothing was unpacked"
    )
