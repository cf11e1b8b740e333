"""The data of a table: prepared when the first run needs them, and once only."""

from __future__ import annotations

__all__ = ["Provider"]

import fcntl
import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rss_rl.data.prepare import prepare
from rss_rl.data.sources import SourceRequest, named_source
from rss_rl.data.store import open_prepared
from rss_rl.data.vector_files import file_on_disk
from rss_rl.durable import replace_file
from rss_rl.errors import DataError
from rss_rl.json_files import read_json
from rss_rl.results.tables.plan import MANIFEST, Place
from rss_rl.results.tables.spec import Table


class Provider:
    """Prepares what is missing.

    Args:
        root: of the datasets' folders and of files of vectors that are no paths from here.
        vectors: files in place of those that table and dataset name, or None.
        tell: called with a line about what is being prepared.
    """

    def __init__(
        self,
        table: Table,
        root: Path | None,
        vectors: Sequence[Path] | None = None,
        tell: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._table, self._root, self._vectors, self._tell = table, root, vectors, tell

    def is_there(self, place: Place) -> bool:
        """Whether the data of a place are prepared."""
        return (place.prepared / MANIFEST).is_file()

    def check_root(self, places: Sequence[Place]) -> None:
        """Check, before anything is made, that it is said where the data of the places are.

        Raises:
            DataError: no root is given and something lies below it, or the root is no directory.
        """
        missing = [place for place in places if place.dataset.source and not self.is_there(place)]
        for place in missing:
            self._vector_files(place)
            folder = place.dataset.folder and self._under_root(place.dataset.folder)
            if folder and self._root and not self._root.is_dir():
                raise DataError(
                    "there is no such directory",
                    where=str(self._root),
                    remedy="Give --data-root DIR, the directory with one folder for each dataset",
                )

    def provide(self, place: Place) -> None:
        """Prepare the data of a place, where they are missing; once, whoever else makes the table.

        Raises:
            DataError: what it is made of is missing or wrong, or was prepared otherwise before, or
                the disk refuses.
        """
        if place.dataset.source is None:
            open_prepared(place.prepared)
            return
        try:
            place.prepared.parent.mkdir(parents=True, exist_ok=True)
            waiting = f"another command prepares {place.name}: waiting for it"
            with _alone(place, lambda: self._tell(waiting)):
                self._prepare(place, place.dataset.source)
        except OSError as error:
            raise DataError(
                f"cannot be written: {error.strerror or error}",
                where=str(place.prepared),
                remedy="Give --out on a disk that can be written and has free space",
            ) from error

    def _prepare(self, place: Place, name: str) -> None:
        dataset = place.dataset
        request = {
            "source": name,
            "options": self._options(place),
            "vectors": [path.name for path in self._vector_files(place)],
            "dim": dataset.dim,
        }
        record = place.prepared.with_name(f"{place.prepared.name}.source.json")
        if self.is_there(place):
            _check_same(record, request)
            return
        self._tell(f"preparing {place.name}")
        folder = self._under_root(dataset.folder) if dataset.folder else None
        if folder is not None and not folder.is_dir():
            raise DataError(
                f"the folder of {name} is missing",
                where=str(folder),
                remedy=f"Put it there (see `rss-rl data list {name}`), or give another --data-root",
            )
        source = named_source(name, SourceRequest(folder, 0, self._options(place)))
        files = self._vector_files(place)
        for file in files:
            if not file_on_disk(file).is_file():
                raise DataError(
                    "the file of word vectors is missing",
                    where=str(file),
                    remedy="Name others with --vectors (`rss-rl data fetch glove-6b` gets some), "
                    "or their directory with --data-root",
                )
        prepare(source, place.prepared, vectors=files, dim=dataset.dim)
        replace_file(record, json.dumps(request, indent=2) + "\n")

    def _options(self, place: Place) -> dict[str, str]:
        fold, folds = place.fold, place.dataset.folds
        given = {} if fold is None else {"fold": str(fold), "folds": str(folds)}
        options = place.dataset.options.items()
        # As on the command line, whichever way the table writes them: `300` and `"300"` are one.
        texts = {name: v if isinstance(v, str) else json.dumps(v) for name, v in options}
        return {**texts, **given}

    def _vector_files(self, place: Place) -> list[Path]:
        if self._vectors is not None:
            return list(self._vectors)
        own = place.dataset.vectors
        return [self._under_root(name) for name in (self._table.vectors if own is None else own)]

    def _under_root(self, name: str) -> Path:
        if self._root is None:
            raise DataError(
                "where the datasets are is not said",
                where=name,
                remedy="Give --data-root DIR, the directory with one folder for each dataset",
            )
        return Path(os.path.normpath(self._root / name))


@contextmanager
def _alone(place: Place, waits: Callable[[], None]) -> Iterator[None]:
    """Hold the place against other commands; the kernel lets go when a process ends, however."""
    lock = place.prepared.with_name(f".{place.name}.lock")
    descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            waits()
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _check_same(record: Path, request: dict[str, Any]) -> None:
    """Refuse data that were prepared otherwise; those without a record were put there by hand."""
    if not record.is_file():
        return
    before = read_json(record, remedy="Remove the prepared directory beside it, and the file")
    changed = [key for key in request if before.get(key) != request[key]]
    if changed:
        raise DataError(
            f"these data were prepared with other {', '.join(changed)}",
            where=str(record.with_name(record.name.removesuffix(".source.json"))),
            remedy="Remove the directory and the .source.json beside it, or give another --out",
        )
