"""A filesystem that works for a number of operations and then refuses for ever."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

from fsspec.implementations.local import LocalFileSystem
from pyarrow import fs

from rss_rl.storage import Storage


class DyingFileSystem(LocalFileSystem):
    """Local files; every change counts, and after `left` of them all are refused."""

    cachable = False
    protocol = "dying"

    def __init__(self, left: int = 10**9, code: int = errno.EIO) -> None:
        super().__init__()
        self.left, self.code, self.counted = left, code, 0

    def _count(self) -> None:
        self.counted += 1
        self.left -= 1
        if self.left < 0:
            raise OSError(self.code, "the storage is gone")

    def open(self, path: str, mode: str = "rb", **options: Any) -> Any:
        if "w" in mode:
            self._count()
        return super().open(path, mode, **options)

    def mv(self, *arguments: Any, **options: Any) -> Any:
        self._count()
        return super().mv(*arguments, **options)

    def rm(self, *arguments: Any, **options: Any) -> Any:
        self._count()
        return super().rm(*arguments, **options)


def storage_at(root: Path, filesystem: DyingFileSystem | None = None) -> Storage:
    """A storage in a local directory, through fsspec."""
    handler = fs.FSSpecHandler(filesystem or DyingFileSystem())
    return Storage(f"dying://{root}", fs.PyFileSystem(handler), str(root))
