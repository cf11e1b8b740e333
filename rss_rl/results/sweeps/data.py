"""The data of a sweep, prepared once when a run first needs them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rss_rl.data.manifest import MANIFEST_FILE
from rss_rl.data.prepare import prepare
from rss_rl.data.sources import SourceRequest, named_source
from rss_rl.data.static_vectors import is_static
from rss_rl.data.store import open_prepared
from rss_rl.durable import disk_errors
from rss_rl.errors import DataError
from rss_rl.results.output import FREE_SPACE
from rss_rl.results.sweeps.spec import Dataset, Spec

DATA_FOLDER = "data"


@dataclass(frozen=True)
class Fold:
    """A dataset, or a fold of it.

    number   of the fold, None: the whole
    options  of its source
    vectors  files of word vectors
    data     where the prepared data are
    """

    dataset: str
    spec: Dataset
    number: int | None
    options: dict[str, str]
    vectors: tuple[Path, ...]
    data: str

    @property
    def name(self) -> str:
        """Name of its folder of runs."""
        return self.dataset if self.number is None else f"{self.dataset}-fold-{self.number}"


def folds_of(spec: Spec, name: str, dataset: Dataset, out: Path) -> list[Fold]:
    """The folds of a dataset; their data are in folders named after how they are prepared."""
    names = spec.vectors if dataset.vectors is None else dataset.vectors
    vectors = [Path(n) if is_static(Path(n)) else Path(spec.root, n) for n in names]
    found = []
    for number in range(dataset.folds) if dataset.folds else [None]:
        own = {} if number is None else {"fold": number, "folds": dataset.folds}
        # As texts, as on the command line: 300 and "300" are the same.
        options = {
            k: v if isinstance(v, str) else json.dumps(v) for k, v in dataset.options.items()
        }
        options |= {key: str(value) for key, value in own.items()}
        how = [dataset.source, options, [path.name for path in vectors], dataset.dim]
        digest = hashlib.sha256(json.dumps(how, sort_keys=True).encode()).hexdigest()[:8]
        fold = Fold(name, dataset, number, options, tuple(vectors), "")
        data = dataset.data or str(out / DATA_FOLDER / f"{fold.name}-{digest}")
        found.append(Fold(name, dataset, number, options, tuple(vectors), data))
    return found


def prepare_data(fold: Fold, root: str, tell: Callable[[str], None]) -> None:
    """Prepare the data of a fold if they are missing.

    Args:
        root: folder of the datasets. tell: called with a line when it takes a while.

    Raises:
        DataError: files are missing or wrong, or a write fails.
    """
    out, source = Path(fold.data), fold.spec.source
    if source is None or (out / MANIFEST_FILE).is_file():
        open_prepared(fold.data)
        return
    tell(f"preparing {fold.name}")
    folder = Path(root, fold.spec.folder) if fold.spec.folder else None
    if folder is not None and not folder.is_dir():
        raise DataError(
            f"the folder of {source} is missing",
            where=str(folder),
            remedy="Give root=DIR, with a folder for each dataset and the files of vectors;"
            f" `rss-rl data list {source}` says what is in it",
        )
    with disk_errors(out, "cannot be written", FREE_SPACE, DataError):
        out.parent.mkdir(parents=True, exist_ok=True)
        named = named_source(source, SourceRequest(folder, 0, fold.options))
        prepare(named, out, vectors=fold.vectors, dim=fold.spec.dim)
