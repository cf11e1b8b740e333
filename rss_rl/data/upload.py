"""Uploading a prepared directory to a URI: manifest last, so that no partial one can be opened."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rss_rl.cache import cache_root
from rss_rl.data.locations import cache_errors
from rss_rl.data.manifest import MANIFEST_FILE
from rss_rl.data.staging import Progress
from rss_rl.errors import DataError
from rss_rl.storage import is_uri, open_storage


@contextmanager
def local_target(out: str, force: bool) -> Iterator[Path]:
    """The directory to prepare in: `out` itself, or for a URI a temporary one in the cache.

    Raises:
        DataError: `out` is empty; or the URI has prepared data, and `force` is not set.
        StorageError: the URI does not answer, or the cache has no room.
    """
    if not out:
        raise DataError("--out is empty", remedy="Name the directory to make: --out data/reviews")
    if not is_uri(out):
        yield Path(out)
        return
    # Also with `force`, to report an address that does not answer before the work.
    if open_storage(out).read(MANIFEST_FILE, 1) is not None and not force:
        raise DataError("exists already", where=out, remedy="Replace it with --force")
    with cache_errors(cache_root()):
        cache_root().mkdir(parents=True, exist_ok=True)
        folder = tempfile.TemporaryDirectory(prefix="preparing-", dir=cache_root())
    with folder:
        yield Path(folder.name) / "prepared"


def upload(folder: Path, uri: str, progress: Progress) -> None:
    """Copy the prepared directory `folder` to `uri`, replacing prepared data there.

    Raises:
        StorageError: a file cannot be written or deleted there.
    """
    storage = open_storage(uri)
    old = {name for name in storage.files() if re.fullmatch(r"\w+-\d{5,}\.arrow", name)}
    # From here on, nothing can be opened there until the new manifest is written.
    storage.delete(MANIFEST_FILE)
    names = sorted(path.name for path in folder.iterdir() if path.name != MANIFEST_FILE)
    for done, name in enumerate(names):
        progress("uploading files", done, len(names))
        storage.upload(folder / name, name)
    for name in sorted(old - set(names)):
        storage.delete(name)
    storage.upload(folder / MANIFEST_FILE, MANIFEST_FILE)
    progress("uploading files", len(names), len(names))
