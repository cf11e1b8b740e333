"""What is there of a download: the bytes that came, and which file they are of.

Both are on the disk before anything can go wrong, so that a process killed at any moment leaves a
part that the next one resumes.
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
    """Say what to do where the disk refuses."""
    try:
        yield
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
        raise DataError(
            f"cannot be written ({error.strerror or error})",
            where=str(path),
            remedy="Free disk space, or name a place with more in --to; what came is kept"
            if full
            else "Name a directory that can be written in --to",
        ) from error


class Part:
    """The bytes of `target` that came so far, in `target`.part.

    Beside them `target`.part.json says what they are of: the address, and the validator by which
    the server says whether its file is still the same (a strong ETag or a modification date).
    """

    def __init__(self, target: Path) -> None:
        self.target = target
        self.path = target.with_name(f"{target.name}.part")
        self._about = target.with_name(f"{target.name}.part.json")

    def length(self) -> int:
        """Bytes there are."""
        return self.path.stat().st_size if self.path.is_file() else 0

    def validator(self, url: str) -> str | None:
        """What the server called the file when the part was begun; None where it is not known."""
        try:
            about = json_object(self._about.read_bytes())
        except OSError:
            return None
        found = about.get("validator") if about.get("url") == url else None
        return found if isinstance(found, str) and found.isprintable() else None

    def begin(self, url: str, validator: str | None) -> None:
        """Forget the bytes there are and note what the next ones are of."""
        with disk_refuses(self._about):
            self.path.write_bytes(b"")  # first: no byte may ever lie beside another's validator
            about = {"url": url, "validator": validator}
            self._about.write_text(json.dumps(about), encoding="utf-8")

    def unsettled(self) -> bool:
        """Whether `target` came whole by a download that was not settled; else it came by hand."""
        return self._about.is_file() and not self.path.exists()

    def forget(self) -> None:
        """Remove the bytes that came."""
        with disk_refuses(self.path):
            self.path.unlink(missing_ok=True)
            self._about.unlink(missing_ok=True)

    def sha256(self) -> str:
        """SHA-256 of the bytes, in hexadecimal."""
        return file_sha256(self.path)

    def finish(self) -> None:
        """Give the file its name; what it is of stays noted until it is settled."""
        with disk_refuses(self.target):
            with self.path.open("rb") as file:
                os.fsync(file.fileno())
            self.path.replace(self.target)

    def settle(self, keep: bool) -> None:
        """End the download, when the file is in use or (`keep` is False) no more needed."""
        with disk_refuses(self.target):
            if not keep:
                self.target.unlink(missing_ok=True)
            self.path.unlink(missing_ok=True)
            self._about.unlink(missing_ok=True)
