"""fetched.json: the files in a folder of downloads, with their sources and SHA-256."""

from __future__ import annotations

import json
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from pathlib import Path

from rss_rl.data.fetching.part import disk_refuses
from rss_rl.durable import file_lock
from rss_rl.errors import DataError

FETCHED_FILE = "fetched.json"
BY_HAND = "by hand"
"""The source of a file that the user put into the folder."""

_LOCK = ".fetch.lock"


@dataclass(frozen=True)
class Fetched:
    """A file that was fetched.

    name     in the catalogue
    source   its address, or 'by hand'
    size     bytes, and sha256: of the file as downloaded
    checked  whether the SHA-256 was compared with a published one
    files    names and bytes of the resulting files in the folder
    before   whether it was there before this command
    """

    name: str
    source: str
    size: int
    sha256: str
    checked: bool
    files: dict[str, int]
    before: bool = False


class Record:
    """The files that were fetched into a folder, kept in its fetched.json."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._path = folder / FETCHED_FILE
        self._all = self._read()

    def _read(self) -> dict[str, Fetched]:
        try:
            read = json.loads(self._path.read_text(encoding="utf-8"))
            found = [Fetched(**{**item, "before": True}) for item in read["files"]]
            if all(isinstance(item.files, dict) for item in found):
                return {item.name: item for item in found}
        except (OSError, ValueError, TypeError, KeyError):
            pass
        return {}  # lost or damaged: files are fetched again

    def intact(self, name: str, sha256: str | None) -> Fetched | None:
        """The file called `name` if all its resulting files exist with their sizes, else None."""
        found = self._all.get(name)
        if found is None or sha256 not in (None, found.sha256):
            return None
        for file, size in found.files.items():
            path = self._folder / file
            if not path.is_file() or path.stat().st_size != size:
                return None
        return found

    def add(self, fetched: Fetched) -> None:
        """Record a file, on the disk at once."""
        self._all[fetched.name] = fetched
        listed = [asdict(item) for item in self._all.values()]
        for item in listed:
            del item["before"]
        temporary = self._path.with_name(f".{FETCHED_FILE}.tmp")
        with disk_refuses(self._path):
            temporary.write_text(json.dumps({"files": listed}, indent=2) + "\n", encoding="utf-8")
            temporary.replace(self._path)


def folder_lock(folder: Path) -> AbstractContextManager[None]:
    """Lock `folder` against other fetches; the kernel releases the lock when the process ends.

    Raises:
        DataError: another process is fetching into it, or it cannot be written.
    """
    busy = DataError(
        "another process is fetching into it",
        where=str(folder),
        remedy="Wait for it, or name another folder with --to",
    )
    with disk_refuses(folder):
        folder.mkdir(parents=True, exist_ok=True)
    return file_lock(folder / _LOCK, busy, disk_refuses(folder))
