"""The data of a table, prepared once when a run first needs them."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rss_rl.data.manifest import MANIFEST_FILE
from rss_rl.data.prepare import prepare as prepare_source
from rss_rl.data.sources import SourceRequest, named_source
from rss_rl.data.static_vectors import is_static
from rss_rl.data.store import open_prepared
from rss_rl.data.vector_files import file_on_disk
from rss_rl.durable import disk_errors, file_lock, replace_file
from rss_rl.errors import DataError
from rss_rl.json_files import read_json
from rss_rl.results.output import FREE_SPACE
from rss_rl.results.tables.plan import Fold
from rss_rl.results.tables.spec import Table

_GIVE_ROOT = "Give --data-root DIR, the directory with one folder for each dataset"


class TableData:
    """Prepares missing data for a table's runs.

    Args:
        root: of the datasets' folders and of relative paths of vector files.
        vectors: files instead of those that table and dataset name, or None.
        tell: called with progress lines.
    """

    def __init__(
        self,
        table: Table,
        root: Path | None = None,
        vectors: Sequence[Path] | None = None,
        tell: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._table, self._root, self._vectors, self.tell = table, root, vectors, tell

    def is_prepared(self, fold: Fold) -> bool:
        """Whether the data of a fold are prepared."""
        return (fold.prepared / MANIFEST_FILE).is_file()

    def check_root(self, folds: Sequence[Fold]) -> None:
        """Check, before any run, that --data-root is given if needed.

        Raises:
            DataError: no root is given although it is needed, or it is no directory.
        """
        for fold in folds:
            if fold.dataset.source is None or self.is_prepared(fold):
                continue
            self._vector_files(fold)
            folder = fold.dataset.folder and self._under_root(fold.dataset.folder)
            if folder and self._root and not self._root.is_dir():
                raise DataError(
                    "there is no such directory", where=str(self._root), remedy=_GIVE_ROOT
                )

    def prepare(self, fold: Fold) -> None:
        """Prepare the data of a fold if they are missing; concurrent commands wait for each other.

        Raises:
            DataError: input files are missing or wrong, the data were prepared with other
                settings, or a write fails.
        """
        if fold.dataset.source is None:
            open_prepared(fold.prepared)
            return
        with disk_errors(fold.prepared, "cannot be written", FREE_SPACE, DataError):
            fold.prepared.parent.mkdir(parents=True, exist_ok=True)
            waiting = f"another command is preparing {fold.name}: waiting for it"
            lock = fold.prepared.with_name(f".{fold.name}.lock")
            with file_lock(lock, lambda: self.tell(waiting)):
                self._prepare(fold, fold.dataset.source)

    def _prepare(self, fold: Fold, name: str) -> None:
        dataset = fold.dataset
        request = {
            "source": name,
            "options": self._options(fold),
            "vectors": [path.name for path in self._vector_files(fold)],
            "dim": dataset.dim,
        }
        record = fold.prepared.with_name(f"{fold.prepared.name}.source.json")
        if self.is_prepared(fold):
            _check_same(record, request)
            return
        self.tell(f"preparing {fold.name}")
        folder = self._under_root(dataset.folder) if dataset.folder else None
        if folder is not None and not folder.is_dir():
            raise DataError(
                f"the folder of {name} is missing",
                where=str(folder),
                remedy=f"Put it there (see `rss-rl data list {name}`), or give another --data-root",
            )
        source = named_source(name, SourceRequest(folder, 0, self._options(fold)))
        files = self._vector_files(fold)
        for file in files:
            if not file_on_disk(file).is_file():
                raise DataError(
                    "the file of word vectors is missing",
                    where=str(file),
                    remedy="Name others with --vectors (`rss-rl data fetch glove-6b` gets some), "
                    "or their directory with --data-root",
                )
        prepare_source(source, fold.prepared, vectors=files, dim=dataset.dim)
        replace_file(record, json.dumps(request, indent=2) + "\n")

    def _options(self, fold: Fold) -> dict[str, str]:
        number, folds = fold.number, fold.dataset.folds
        given = {} if number is None else {"fold": str(number), "folds": str(folds)}
        options = fold.dataset.options.items()
        # As strings, as on the command line: `300` and `"300"` in the table are equal.
        texts = {name: v if isinstance(v, str) else json.dumps(v) for name, v in options}
        return {**texts, **given}

    def _vector_files(self, fold: Fold) -> list[Path]:
        if self._vectors is not None:
            return list(self._vectors)
        own = fold.dataset.vectors
        return [self._under_root(name) for name in (self._table.vectors if own is None else own)]

    def _under_root(self, name: str) -> Path:
        if is_static(Path(name)):
            return Path(name)
        if self._root is None:
            what = "the folder of the datasets is not given"
            raise DataError(what, where=name, remedy=_GIVE_ROOT)
        return Path(os.path.normpath(self._root / name))


def _check_same(record: Path, request: dict[str, Any]) -> None:
    """Refuse data prepared with other settings; data without a record were put there by hand."""
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
