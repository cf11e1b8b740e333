"""A partial download: the bytes received so far, and which file they belong to.

Both are written as they arrive, so a process killed at any moment leaves a resumable part.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rss_rl.durable import file_sha256
from rss_rl.errors import DataError
from rss_rl.json_files import json_object


@contextmanager
def disk_refuses(path: Path) -> Iterator[None]:
    """Re-raise errors of the disk as a `DataError` with a remedy."""
    try:
        yield
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
        raise DataError(
            f"cannot be written ({error.strerror or error})",
            where=str(path),
            remedy="Free disk space, or name a directory with more in --to; the part is kept"
            if full
            else "Name a writable directory in --to",
        ) from error


class Part:
    """The bytes of `target` received so far, in `target`.part.

    `target`.part.json records where they are from: the address, and the validator by which the
    server tells whether its file is still the same (a strong ETag or a modification date).
    """

    def __init__(self, target: Path) -> None:
        self.target = target
        self.path = target.with_name(f"{target.name}.part")
        self._about = target.with_name(f"{target.name}.part.json")

    def length(self) -> int:
        """Bytes received so far."""
        return self.path.stat().st_size if self.path.is_file() else 0

    def validator(self, url: str) -> str | None:
        """The server's validator when the part was begun; None if unknown."""
        try:
            about = json_object(self._about.read_bytes())
        except OSError:
            return None
        found = about.get("validator") if about.get("url") == url else None
        return found if isinstance(found, str) and found.isprintable() else None

    def begin(self, url: str, validator: str | None) -> None:
        """Discard the bytes so far and record where the next ones are from."""
        with disk_refuses(self._about):
            self.path.write_bytes(b"")  # first: bytes must never be paired with another validator
            about = {"url": url, "validator": validator}
            self._about.write_text(json.dumps(about), encoding="utf-8")

    def unsettled(self) -> bool:
        """Whether `target` is a complete download that was not settled, rather than put by hand."""
        return self._about.is_file() and not self.path.exists()

    def forget(self) -> None:
        """Remove the part."""
        with disk_refuses(self.path):
            self.path.unlink(missing_ok=True)
            self._about.unlink(missing_ok=True)

    def sha256(self) -> str:
        """SHA-256 of the bytes, in hexadecimal."""
        return file_sha256(self.path)

    def finish(self) -> None:
        """Rename the complete part to `target`; its record stays until it is settled."""
        with disk_refuses(self.target):
            with self.path.open("rb") as file:
                os.fsync(file.fileno())
            self.path.replace(self.target)

    def settle(self, keep: bool) -> None:
        """End the download; unless `keep`, the file is no longer needed and removed."""
        with disk_refuses(self.target):
            if not keep:
                self.target.unlink(missing_ok=True)
            self.path.unlink(missing_ok=True)
            self._about.unlink(missing_ok=True)
