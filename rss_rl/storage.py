"""Files at a URI: a local directory, or any filesystem that pyarrow or fsspec knows (S3, GCS, ...).

A name is a path below the root, joined by `/`, and may not lead out of it. Files are written
atomically: object stores show only complete objects; elsewhere a temporary file is renamed.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import BinaryIO

import pyarrow as pa
from pyarrow import fs

from rss_rl.durable import replacing
from rss_rl.errors import StorageError

_SCHEME = re.compile(r"([a-z][a-z0-9+.-]+)://")
_OBJECT_STORE = re.compile(r"s3a?|gcs|gs|abfss?|adl|az")
_TEMPORARY = ".tmp-"
_HALF_WRITTEN = re.compile(rf"{re.escape(_TEMPORARY)}(.+)-\d+")
_MOST_READ = 256 * 2**20
_CHUNK = 8 * 2**20


def final_name(name: str) -> str:
    """The name that a temporary file of a killed writer would have got; other names are their own.

    >>> final_name("a/.tmp-b-123"), final_name("a/b")
    ('a/b', 'a/b')
    """
    path = PurePosixPath(name)
    half = _HALF_WRITTEN.fullmatch(path.name)
    return name if half is None else path.with_name(half[1]).as_posix()


def is_uri(location: str) -> bool:
    """Whether `location` names a filesystem, as s3://bucket/key does, not a plain local path."""
    return _SCHEME.match(location) is not None


@dataclass(frozen=True)
class Storage:
    """A directory on some filesystem, opened by `open_storage`; picklable.

    uri         what it was opened with
    filesystem  pyarrow's; root: the directory's path on it
    """

    uri: str
    filesystem: fs.FileSystem
    root: str

    def is_file(self) -> bool:
        """Whether the URI is that of a file, not a directory."""
        with self._refusals(""):
            return bool(self.filesystem.get_file_info(self.root).type == fs.FileType.File)

    def files(self) -> dict[str, int]:
        """Size in bytes of every file below the root, by name; empty where there is no directory.

        Raises:
            StorageError: as in all methods, the filesystem refuses; names the file.
        """
        with self._refusals(""):
            selector = fs.FileSelector(self.root, recursive=True, allow_not_found=True)
            infos = self.filesystem.get_file_info(selector)
        return {
            str(PurePosixPath(info.path).relative_to(self.root)): info.size
            for info in infos
            if info.type == fs.FileType.File
        }

    def read(self, name: str, limit: int | None = None) -> bytes | None:
        """The bytes of a file, at most the first `limit`; None if there is no such file."""
        with self._refusals(name):
            path = self._path(name)
            info = self.filesystem.get_file_info(path)
            if info.type == fs.FileType.NotFound:
                return None
            if info.type != fs.FileType.File:  # a device has no end
                raise ValueError("not a file")
            if limit is None and (info.size or 0) > _MOST_READ:
                raise ValueError(f"larger than {_MOST_READ} bytes")
            with self.filesystem.open_input_stream(path) as stream:
                return bytes(stream.read(_MOST_READ if limit is None else limit))

    def open(self, name: str) -> pa.NativeFile:
        """A file, open for reading in any order."""
        with self._refusals(name):
            return self.filesystem.open_input_file(self._path(name))

    def write(self, name: str, content: bytes) -> None:
        """Write a file, replacing an existing one."""
        with self._refusals(name), self._output(name) as stream:
            stream.write(content)

    def download(self, name: str, target: Path, size: int | None = None) -> None:
        """Copy a file to the local path `target` atomically.

        Args:
            size: bytes that it must have; at most one chunk more is written.

        Raises:
            StorageError: also if it has another size.
        """
        done = 0
        with self._refusals(name):
            target.parent.mkdir(parents=True, exist_ok=True)
            with (
                replacing(target) as temporary,
                self.filesystem.open_input_stream(self._path(name)) as stream,
                temporary.open("wb") as file,
            ):
                while (size is None or done <= size) and (chunk := stream.read(_CHUNK)):
                    file.write(chunk)
                    done += len(chunk)
                if size not in (None, done):
                    raise OSError(f"has other than {size} bytes")

    def upload(
        self, source: Path | BinaryIO, name: str, wrote: Callable[[], None] = lambda: None
    ) -> None:
        """Copy a local file, or an open one from its start, replacing an existing file.

        Args:
            wrote: called after each part.
        """
        with self._refusals(name), ExitStack() as stack:
            file = stack.enter_context(source.open("rb")) if isinstance(source, Path) else source
            file.seek(0)
            stream = stack.enter_context(self._output(name))
            while chunk := file.read(_CHUNK):
                stream.write(chunk)
                wrote()

    def delete(self, name: str) -> None:
        """Remove a file if it exists, and its directory if that is empty then."""
        with self._refusals(name):
            path = self._inside(name)
            if self.filesystem.get_file_info(path).type == fs.FileType.File:
                self.filesystem.delete_file(path)
            folder = str(PurePosixPath(path).parent)
            if self._is_object_store() or folder == self.root:
                return
            selector = fs.FileSelector(folder, allow_not_found=True)
            is_folder = self.filesystem.get_file_info(folder).type == fs.FileType.Directory
            if is_folder and not self.filesystem.get_file_info(selector):
                self.filesystem.delete_dir(folder)

    def _is_object_store(self) -> bool:
        """Whether files appear only when complete, and there are no directories."""
        scheme = self.filesystem.type_name.rpartition("+")[2]
        return _OBJECT_STORE.fullmatch(scheme) is not None

    @contextmanager
    def _output(self, name: str) -> Iterator[pa.NativeFile]:
        path = PurePosixPath(self._inside(name))
        self.filesystem.create_dir(str(path.parent), recursive=True)
        if self._is_object_store():
            with self.filesystem.open_output_stream(str(path)) as stream:
                yield stream
            return
        # No process id: two containers that share the path may both be process 1.
        temporary = str(path.with_name(f"{_TEMPORARY}{path.name}-{uuid.uuid4().int}"))
        with self.filesystem.open_output_stream(temporary) as stream:
            yield stream
        self.filesystem.move(temporary, str(path))

    def _path(self, name: str) -> str:
        parts = PurePosixPath(name).parts
        if not parts or ".." in parts or name.startswith("/"):
            raise ValueError(f"{name!r} is no name below the root")
        # Joined as text: the root may be a URL, in which a Path would merge two slashes.
        return "/".join([self.root.rstrip("/"), *parts])

    def _inside(self, name: str) -> str:
        """The path of a file to write or delete, to which no link in a local root leads."""
        path = self._path(name)
        if isinstance(self.filesystem, fs.LocalFileSystem):
            folders = (Path(self.root, parent) for parent in PurePosixPath(name).parents)
            if any(folder.is_symlink() for folder in folders if folder != Path(self.root)):
                raise ValueError("a link leads to it")
        return path

    @contextmanager
    def _refusals(self, name: str) -> Iterator[None]:
        """Re-raise the errors of any filesystem as `StorageError`."""
        try:
            yield
        except Exception as error:  # fsspec packages have their own exceptions
            where = f"{self.uri.rstrip('/')}/{name}" if name else self.uri
            raise StorageError(
                str(error).splitlines()[0] if str(error) else type(error).__name__,
                where=where,
                remedy="Check the address, your credentials and the free space",
            ) from error


def open_storage(location: str) -> Storage:
    """The directory at a URI or local path; it need not exist.

    Raises:
        StorageError: there is no filesystem of that kind, or it cannot be reached.
    """
    try:
        if not is_uri(location):
            return Storage(location, fs.LocalFileSystem(), str(Path(location).absolute()))
        try:
            filesystem, root = fs.FileSystem.from_uri(location)
        except pa.ArrowInvalid:  # a scheme that pyarrow leaves to fsspec
            import fsspec

            filesystem, root = fsspec.core.url_to_fs(location)
            filesystem = fs.PyFileSystem(fs.FSSpecHandler(filesystem))
    except (OSError, ValueError, ImportError, pa.ArrowException) as error:
        raise StorageError(
            f"cannot be opened: {error}",
            where=location,
            remedy="Use a local path, or a URI such as s3://bucket/prefix; other schemes need their"
            " fsspec package installed",
        ) from error
    return Storage(location, filesystem, root)
