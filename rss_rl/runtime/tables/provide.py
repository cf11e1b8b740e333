"""The data of a table: prepared when the first run needs them, and once only."""

from __future__ import annotations

__all__ = ["Provider"]

import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rss_rl.data.prepare import prepare
from rss_rl.data.sources import SourceRequest, named_source
from rss_rl.data.store import open_prepared
from rss_rl.errors import DataError
from rss_rl.runtime.atomic import read_json, replace_file
from rss_rl.runtime.tables.plan import Place
from rss_rl.runtime.tables.spec import Table

_MANIFEST = "manifest.json"


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
        return (place.prepared / _MANIFEST).is_file()

    def provide(self, place: Place) -> None:
        """Prepare the data of a place, where they are missing.

        Raises:
            DataError: what it is made of is missing or wrong, or was prepared otherwise before.
        """
        dataset = place.dataset
        if dataset.source is None:
            open_prepared(place.prepared)
            return
        request = {
            "source": dataset.source,
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
        source = named_source(dataset.source, SourceRequest(folder, 0, self._options(place)))
        files = self._vector_files(place)
        for file in files:
            if not file.is_file():
                raise DataError(
                    "the file of word vectors is missing",
                    where=str(file),
                    remedy="Name others with --vectors, or their directory with --data-root",
                )
        prepare(source, place.prepared, vectors=files, dim=dataset.dim)
        replace_file(record, json.dumps(request, indent=2) + "\n")

    def _options(self, place: Place) -> dict[str, str]:
        fold, folds = place.fold, place.dataset.folds
        given = {} if fold is None else {"fold": str(fold), "folds": str(folds)}
        return {**place.dataset.options, **given}

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
