"""The data of a sweep: the folds of its datasets, and where they are when they are prepared."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace
from pathlib import Path

from rss_rl.data.vector_files import names_a_file
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
    vectors = tuple(Path(spec.root, n) if names_a_file(Path(n)) else Path(n) for n in names)
    found = []
    for number in range(dataset.folds) if dataset.folds else [None]:
        own = {} if number is None else {"fold": number, "folds": dataset.folds}
        given = {**dataset.options, **own}.items()
        # As texts, as on the command line: 300 and "300" are the same.
        options = {key: v if isinstance(v, str) else json.dumps(v) for key, v in given}
        how = json.dumps([dataset.source, sorted(options.items()), *map(str, vectors), dataset.dim])
        digest = hashlib.sha256(how.encode()).hexdigest()[:8]
        fold = Fold(name, dataset, number, options, vectors, dataset.data or "")
        made = str(out / DATA_FOLDER / f"{fold.name}-{digest}")
        found.append(replace(fold, data=fold.data or made))
    return found
