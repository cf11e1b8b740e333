"""The files of a prepared dataset: a local directory, or a URI with a local cache.

A directory is read in place. From a URI the manifest, the vocabulary and the vectors are copied
when it is opened, and a shard at its first use, into

    $RSS_RL_CACHE (default ~/.cache/rss-rl)/data/SHA-256 of the manifest/

so that the processes of a machine share them, and different data are kept apart.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from contextlib import AbstractContextManager
from functools import cached_property
from pathlib import Path

from rss_rl.cache import cache_root
from rss_rl.data.manifest import (
    MANIFEST_BYTES,
    MANIFEST_FILE,
    VECTORS_FILE,
    VOCABULARY_FILE,
    Manifest,
)
from rss_rl.durable import disk_errors, file_lock, file_sha256, replacing
from rss_rl.errors import DataError, StorageError
from rss_rl.storage import Storage, is_uri, open_storage

_sound: set[tuple[int, int, int, int, str]] = set()
"""Files that this process has verified: device, inode, time of change, size, SHA-256."""


class LocalFiles:
    """A prepared directory, read in place."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def location(self) -> str:
        """Address for reopening it in any process: the absolute path."""
        return str(self.folder.resolve())

    def manifest(self) -> Manifest:
        """The dataset's manifest."""
        return Manifest.load(self.folder)

    def fetch(self, name: str, size: int, sha256: str) -> Path:
        """The local path of a file of `size` bytes, whose SHA-256 was verified in this process.

        Raises:
            DataError: it is missing, damaged, or cannot be read.
        """
        self.check({name: size})
        return self._verified(name, sha256)

    def _verified(self, name: str, sha256: str) -> Path:
        path = self.folder / name
        try:
            status = os.stat(path)
            identity = (status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size, sha256)
            found = sha256 if identity in _sound else file_sha256(path)
        except OSError as error:
            raise _refused(path, error) from error
        if found != sha256:
            what = f"is damaged: its SHA-256 is {found}, the manifest says {sha256}"
            raise self.damaged(name, what)
        _sound.add(identity)
        return path

    def check(self, sizes: Mapping[str, int]) -> None:
        """Check that files exist with these sizes.

        Raises:
            DataError: one does not.
        """
        for name, size in sizes.items():
            path = self.folder / name
            try:
                found = path.stat().st_size
            except FileNotFoundError as error:
                raise _missing(str(path)) from error
            except OSError as error:
                raise _refused(path, error) from error
            if found != size:
                raise self.damaged(name, f"has {found} bytes, the manifest says {size}")

    def damaged(self, name: str, what: str) -> DataError:
        """The error to raise for a file with bad content."""
        remedy = "The file is cut short or damaged: prepare the data again"
        return DataError(what, where=str(self.folder / name), remedy=remedy)


class CachedFiles(LocalFiles):
    """A prepared dataset at a URI; pickles by URI, and is reopened with the cache of that machine.

    Args:
        location: the URI.
        digest: SHA-256 of the manifest, in hexadecimal.
    """

    def __init__(self, location: str, digest: str) -> None:
        super().__init__(cache_root() / "data" / digest)
        self._location, self._digest = location, digest

    def __reduce__(self) -> tuple[object, ...]:
        return (CachedFiles, (self._location, self._digest))

    @property
    def location(self) -> str:
        """The URI."""
        return self._location

    @cached_property
    def _storage(self) -> Storage:
        return open_storage(self.location)

    def fetch(self, name: str, size: int, sha256: str) -> Path:
        """See `LocalFiles`; a file that is not in the cache is downloaded.

        Raises:
            DataError, StorageError: it is missing, of another size, damaged, or does not come.
        """
        path = self.folder / name
        if not _is_whole(path, size):
            with cache_errors(path):
                self.folder.mkdir(parents=True, exist_ok=True)
                with file_lock(self.folder / f".lock-{name}", lambda: None):
                    if not _is_whole(path, size):  # another process may have been faster
                        self._download(name, path, size)
        return self._verified(name, sha256)

    def _download(self, name: str, path: Path, size: int) -> None:
        try:
            self._storage.download(name, path, size)
        except StorageError as error:
            remedy = f"{error.remedy}; or upload the data again, with --force"
            raise StorageError(error.what, where=error.where, remedy=remedy) from error

    def check(self, sizes: Mapping[str, int]) -> None:
        """See `LocalFiles`; nothing is fetched.

        Raises:
            DataError, StorageError: one does not, or there is no answer.
        """
        found = self._storage.files()
        for name, size in sizes.items():
            where = f"{self.location.rstrip('/')}/{name}"
            if name not in found:
                raise _missing(where)
            if found[name] != size:
                what = f"has {found[name]} bytes, the manifest says {size}"
                raise DataError(what, where=where, remedy="Upload the data again, with --force")

    def damaged(self, name: str, what: str) -> DataError:
        """See `LocalFiles`; the bad copy is deleted, so that it is not read again."""
        (self.folder / name).unlink(missing_ok=True)
        return DataError(
            what,
            where=f"{self.location.rstrip('/')}/{name}",
            remedy="The copy was deleted: try once more, then upload the data again, with --force",
        )


def _is_whole(path: Path, size: int) -> bool:
    try:
        return path.stat().st_size == size
    except OSError:
        return False


def _refused(path: Path, error: OSError) -> DataError:
    return DataError(
        f"cannot be read ({error.strerror or error})",
        where=str(path),
        remedy="Check the disk and the file's permissions",
    )


def _missing(where: str) -> DataError:
    return DataError("is missing", where=where, remedy="Copy it back, or prepare the data again")


def cache_errors(where: Path) -> AbstractContextManager[None]:
    """Re-raise errors of the cache's disk as a `StorageError`."""
    remedy = "Name a directory with space in RSS_RL_CACHE"
    return disk_errors(where, "cannot be written", remedy, StorageError)


def open_files(location: Path | str) -> LocalFiles:
    """The files of a prepared dataset at a path or URI.

    Raises:
        DataError: there is no manifest, or it cannot be used. StorageError: no answer.
    """
    if not (isinstance(location, str) and is_uri(location)):
        return LocalFiles(Path(location))
    content = open_storage(location).read(MANIFEST_FILE, MANIFEST_BYTES + 1)
    if content is None:
        raise DataError(
            f"there is no {MANIFEST_FILE}, or no answer",
            where=location,
            remedy="Check the address; `rss-rl data prepare ... --out URI` puts a dataset there",
        )
    manifest = Manifest.parse(content, f"{location.rstrip('/')}/{MANIFEST_FILE}")
    files = CachedFiles(location, hashlib.sha256(content).hexdigest())
    with cache_errors(files.folder):
        files.folder.mkdir(parents=True, exist_ok=True)
        with replacing(files.folder / MANIFEST_FILE) as temporary:
            temporary.write_bytes(content)
    files.fetch(VOCABULARY_FILE, manifest.vocabulary.bytes, manifest.vocabulary.sha256)
    files.fetch(VECTORS_FILE, manifest.vectors.bytes, manifest.vectors.sha256)
    return files
