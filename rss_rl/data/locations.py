"""The files of a prepared dataset: a local directory, or a URI with a local copy.

A directory is read in place. From a URI the dataset is copied once a machine, into

    $RSS_RL_CACHE (default ~/.cache/rss-rl)/data/SHA-256 of the manifest/

so that its processes share it, and different data are kept apart.
"""

from __future__ import annotations

import hashlib
import os
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from rss_rl.cache import cache_root
from rss_rl.data.manifest import MANIFEST_BYTES, MANIFEST_FILE, FileInfo, Manifest
from rss_rl.durable import disk_errors, file_lock, file_sha256, new_folder
from rss_rl.errors import DataError, StorageError
from rss_rl.storage import is_uri, open_storage

_sound: set[tuple[int, int, int, int, str]] = set()
"""Files that this process has verified: device, inode, time of change, size, SHA-256."""


@dataclass(frozen=True)
class Files:
    """The files of a prepared dataset.

    location  argument for `open_files` in any process: an absolute path, or a URI
    folder    where they lie on this machine
    digest    SHA-256 of the manifest, for a URI
    """

    location: str
    folder: Path
    digest: str = ""

    def __reduce__(self) -> tuple[object, ...]:
        return (open_files, (self.location, self.digest))  # with the cache of that machine

    def verified(
        self, name: str, info: FileInfo, remedy: str = "", *, content: bool = True
    ) -> Path:
        """The path of a file of the recorded size and, once a process, SHA-256.

        Args:
            remedy: for damage; empty: that for a file of the manifest.
            content: False: its size alone is checked.

        Raises:
            DataError: it is missing, damaged, or cannot be read.
        """
        path = self.folder / name
        try:
            status = os.stat(path)
            identity = status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size, info.sha256
            read = content and status.st_size == info.bytes and identity not in _sound
            digest = file_sha256(path) if read else info.sha256
        except OSError as error:
            what = f"cannot be read ({error.strerror or error})"
            raise self.damaged(name, what, remedy) from error
        if (status.st_size, digest) != (info.bytes, info.sha256):
            what = f"has {status.st_size} bytes, the manifest says {info.bytes}"
            if status.st_size == info.bytes:
                what = f"its SHA-256 is {digest}, the manifest says {info.sha256}"
            raise self.damaged(name, what, remedy)
        if content:
            _sound.add(identity)
        return path

    def damaged(self, name: str, what: str, remedy: str = "") -> DataError:
        """The error to raise for a file that is missing or has bad content."""
        copy = f"Delete {self.folder}, a copy of {self.location}. If that does not help, prepare"
        again = f"{copy if self.digest else 'Check the disk, or prepare'} the data again"
        return DataError(what, where=str(self.folder / name), remedy=remedy or again)


def cache_errors(where: Path) -> AbstractContextManager[None]:
    """Re-raise errors of the cache's disk as a `StorageError`."""
    remedy = "Name a directory with space in RSS_RL_CACHE"
    return disk_errors(where, "cannot be written", remedy, StorageError)


def open_files(location: Path | str, digest: str = "") -> Files:
    """The files of a prepared dataset at a path or URI, which is copied if this machine lacks it.

    Args:
        digest: of the manifest, if it was read before.

    Raises:
        DataError: there is no manifest, or it cannot be used. StorageError: no answer, or the cache
            has no room.
    """
    if not (isinstance(location, str) and is_uri(location)):
        return Files(str(Path(location).resolve()), Path(location))
    if digest and (files := cached_files(location, digest)):
        return files
    storage = open_storage(location)
    content = storage.read(MANIFEST_FILE, MANIFEST_BYTES)
    if content is None:
        raise DataError(
            f"there is no {MANIFEST_FILE}, or no answer",
            where=location,
            remedy="Check the address; copy a prepared folder there, whole",
        )
    sha256 = hashlib.sha256(content).hexdigest()
    if digest not in ("", sha256):
        raise DataError("was replaced meanwhile", where=location, remedy="Start again")
    manifest = Manifest.parse(content, f"{location.rstrip('/')}/{MANIFEST_FILE}")

    place = _place(sha256)
    with cache_errors(place):
        place.parent.mkdir(parents=True, exist_ok=True)
        with file_lock(place.parent / f".lock-{sha256}", lambda: None):
            if not place.is_dir():  # else another process was faster
                with new_folder(place) as folder:
                    for name, info in manifest.files().items():
                        storage.download(name, folder / name, info.bytes)
                    (folder / MANIFEST_FILE).write_bytes(content)
    return Files(location, place, sha256)


def cached_files(location: str, digest: str) -> Files | None:
    """The files at a URI with this manifest, if this machine has a copy of them."""
    place = _place(digest)
    return Files(location, place, digest) if place.is_dir() else None


def _place(digest: str) -> Path:
    """Where the copy of a dataset is."""
    return cache_root() / "data" / digest
