"""The files of a prepared dataset: a local directory, or a URI with a local cache.

A directory is read in place. From a URI the manifest, the vocabulary and the vectors are copied
when it is opened, and a shard at its first use, into

    $RSS_RL_CACHE (default ~/.cache/rss-rl)/data/SHA-256 of the manifest/

so that the processes of a machine share them, and different data are kept apart. Beyond
RSS_RL_CACHE_GB (default 20) gigabytes the least recently used shards are deleted; a process that
has one mapped can still read it.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
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
from rss_rl.durable import disk_errors, file_sha256
from rss_rl.errors import DataError, StorageError
from rss_rl.storage import Storage, is_uri, open_storage

_AGAIN = "The file is cut short or damaged: prepare the data again"
_POLL_S, _PATIENCE_S = 0.05, 120.0
_STALE_S = 24 * 3600.0
"""Age at which a temporary file is taken for that of a process that died."""
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

    def fetch(self, name: str, size: int) -> Path:
        """The local path of a file of `size` bytes.

        Raises:
            DataError: it is missing, or of another size.
        """
        path = self.folder / name
        try:
            found = path.stat().st_size
        except FileNotFoundError as error:
            raise _missing(str(path)) from error
        except OSError as error:
            raise refused(path, error) from error
        if found != size:
            raise self.damaged(name, f"has {found} bytes, the manifest says {size}")
        return path

    def check(self, sizes: Mapping[str, int]) -> None:
        """Check that files exist with these sizes.

        Raises:
            DataError: one does not.
        """
        for name, size in sizes.items():
            self.fetch(name, size)

    def damaged(self, name: str, what: str) -> DataError:
        """The error to raise for a file with bad content."""
        return DataError(what, where=str(self.folder / name), remedy=_AGAIN)


class CachedFiles:
    """A prepared dataset at a URI; pickles by URI, and is reopened with the cache of that machine.

    Args:
        location: the URI.
        digest: SHA-256 of the manifest, in hexadecimal.
    """

    def __init__(self, location: str, digest: str) -> None:
        self.location, self._digest = location, digest
        self.folder = cache_root() / "data" / digest

    def __reduce__(self) -> tuple[object, ...]:
        return (CachedFiles, (self.location, self._digest))

    @cached_property
    def _storage(self) -> Storage:
        return open_storage(self.location)

    def manifest(self) -> Manifest:
        """The manifest as it was when the dataset was opened."""
        return Manifest.load(self.folder)

    def fetch(self, name: str, size: int) -> Path:
        """See `LocalFiles`; a cached file is marked as used.

        Raises:
            DataError, StorageError: it is missing, of another size, or cannot be fetched.
        """
        path = self.folder / name
        if not _touch(path, size):
            with cache_errors(path):
                self.folder.mkdir(parents=True, exist_ok=True)
                with _turn(self.folder / f".lock-{name}"):
                    if not _touch(path, size):
                        self._download(name, path, size)
        return path

    def _download(self, name: str, path: Path, size: int) -> None:
        limit = _limit()
        try:
            self._storage.download(name, path, size)
        except StorageError as error:
            remedy = f"{error.remedy}; or upload the data again, with --force"
            raise StorageError(error.what, where=error.where, remedy=remedy) from error
        _evict(path, limit)

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


Files = LocalFiles | CachedFiles
"""The files of one prepared dataset; `folder`: the local directory of fetched ones."""


def refused(path: Path, error: OSError) -> DataError:
    """The error to raise for a file that the system refuses to read."""
    return DataError(
        f"cannot be read ({error.strerror or error})",
        where=str(path),
        remedy="Check the disk and the file's permissions",
    )


def check_sum(path: Path, sha256: str | None) -> None:
    """Verify the SHA-256 of a file, once per process; None: nothing to verify.

    Raises:
        ValueError: it differs. OSError: the file cannot be read.
    """
    if sha256 is None:
        return
    status = os.stat(path)
    identity = (status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size, sha256)
    if identity in _sound:
        return
    found = file_sha256(path)
    if found != sha256:
        raise ValueError(f"is damaged: its SHA-256 is {found}, the manifest says {sha256}")
    _sound.add(identity)


def _missing(where: str) -> DataError:
    return DataError("is missing", where=where, remedy="Copy it back, or prepare the data again")


def cache_errors(where: Path) -> AbstractContextManager[None]:
    """Re-raise errors of the cache's disk as a `StorageError`."""
    remedy = "Name a directory with space in RSS_RL_CACHE"
    return disk_errors(where, "cannot be written", remedy, StorageError)


def open_files(location: Path | str) -> Files:
    """The files of a prepared dataset at a path or URI.

    Raises:
        DataError: there is no manifest, or it cannot be used. StorageError: no answer.
    """
    if not (isinstance(location, str) and is_uri(location)):
        return LocalFiles(Path(location))
    _limit()  # a bad one is refused before anything is fetched
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
        temporary = files.folder / f".tmp-{MANIFEST_FILE}-{uuid.uuid4().hex}"
        temporary.write_bytes(content)
        os.replace(temporary, files.folder / MANIFEST_FILE)
    files.fetch(VOCABULARY_FILE, manifest.vocabulary.bytes)
    files.fetch(VECTORS_FILE, manifest.vectors.bytes)
    return files


def _limit() -> float:
    """Bytes of shards to keep.

    Raises:
        DataError: RSS_RL_CACHE_GB is not a number, or negative.
    """
    text = os.environ.get("RSS_RL_CACHE_GB", "20")
    with suppress(ValueError):
        if (gigabytes := float(text)) >= 0:  # not NaN either
            return gigabytes * 1e9
    raise DataError(
        f"'{text}' is not a number of gigabytes", where="RSS_RL_CACHE_GB", remedy="Write 20"
    )


def _touch(path: Path, size: int) -> bool:
    """Whether there is a complete copy; it is marked as used."""
    try:
        found = path.stat()
        if found.st_size != size:
            return False
        # The access time only: readers identify the file by its modification time.
        os.utime(path, ns=(time.time_ns(), found.st_mtime_ns))
    except OSError:
        return False
    return True


@contextmanager
def _turn(lock: Path) -> Iterator[None]:
    """Lock a file for fetching; after _PATIENCE_S seconds of waiting, go on without the lock."""
    end = time.monotonic() + _PATIENCE_S
    with lock.open("wb") as stream:
        while time.monotonic() < end:
            try:
                fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                time.sleep(_POLL_S)
            except OSError:  # a filesystem without locks: each process fetches
                break
        yield


def _evict(newest: Path, limit: float) -> None:
    """Delete the least recently used shards of all datasets, but not the one just fetched.

    Args:
        limit: bytes to keep.
    """
    found = []
    for path in (cache_root() / "data").glob("*/*"):
        try:
            status = path.stat()
            if path.name.startswith(".tmp-") and time.time() - status.st_mtime > _STALE_S:
                path.unlink()
        except OSError:  # another process was faster
            continue
        if path.suffix == ".arrow" and path != newest and not path.name.startswith("."):
            found.append((status.st_atime_ns, status.st_size, path))
    room = limit - newest.stat().st_size
    for _, size, path in sorted(found, reverse=True):
        room -= size
        if room < 0:
            path.unlink(missing_ok=True)
