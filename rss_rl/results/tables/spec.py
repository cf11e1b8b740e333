"""The specification of a table: datasets, rows, settings of each run, published figures.

A table is a YAML file. Settings are dotted configuration keys, merged in the order base, table,
dataset, row, row on that dataset: later ones win.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, Field, model_validator

from rss_rl.config import Section, parse_section, read_tree
from rss_rl.errors import ConfigError, nearest
from rss_rl.metrics.measures import all_measures, find_measure

_EXTRA = ("parameters", "epoch_s", "inference_s")
_Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9.-]{0,60}$")]
_Settings = Mapping[str, Any]
_Published = Annotated[float, Field(ge=-1)]
_Named = TypeVar("_Named", "Dataset", "Row")

Figure = tuple[float, float | None]
"""A published mean, and its standard deviation if published."""


def percent_scale(metric: str) -> int:
    """Factor for display: 100 for shares, which are shown in percent as in papers, else 1."""
    return 100 if find_measure(metric).percent else 1


def heading(metric: str) -> str:
    """Heading of the metric's column."""
    return find_measure(metric).label + (" %" if find_measure(metric).percent else "")


def _require(name: str, known: Iterable[str], what: str) -> None:
    names = list(known)
    if name not in names:
        raise ValueError(f"{what}{nearest(name, names)}")


def _known(metric: str) -> str:
    _require(metric[:100], all_measures(), f"no metric '{metric:.100}'")
    return metric


class Base(Section):
    """A base configuration of runs.

    config    as for `rss-rl train`
    settings  overrides
    """

    config: str
    settings: _Settings = Field(default={})


class Dataset(Section):
    """Data that rows are trained on, and the configurations that fit them.

    name      for directories. label: for headings, default the name
    source    as in `rss-rl data list`. folder: under the data root; options: of the source
    prepared  instead of these three: a prepared directory
    vectors   instead of the table's
    dim       width of random vectors, if there are no vector files
    folds     of cross-validation: the source must have the options fold and folds
    bases     by the name that rows refer to; the first is the default
    """

    name: _Name
    label: str = ""
    note: str = ""
    source: str | None = None
    folder: str | None = None
    options: Mapping[str, str | int | float | bool | None] = {}
    prepared: str | None = None
    vectors: tuple[str, ...] | None = Field(default=None, strict=False)
    dim: int = Field(default=100, ge=1)
    folds: int | None = Field(default=None, ge=2)
    seeds: int | None = Field(default=None, ge=1)
    bases: Mapping[str, Base] = Field(min_length=1)
    settings: _Settings = Field(default={})

    @model_validator(mode="after")
    def _comes_from_somewhere(self) -> Dataset:
        if (self.source is None) == (self.prepared is None):
            raise ValueError("give either source or prepared")
        if self.prepared is not None and (self.folds or self.folder or self.options):
            raise ValueError("prepared data have no folder, options or folds")
        return self


class Row(Section):
    """A model of the table.

    name         for directories. label: as shown
    base         name of one of the dataset's bases
    mode         selection mode whose scores are shown; `all` for runs that select all tokens
    datasets     to train on; default all of the table
    seeds        at most
    settings     on all datasets. settings_on: by dataset
    published    by dataset and metric, a number or [mean, standard deviation]; also `parameters`,
                 `epoch_s` and `inference_s` (seconds)
    runs         false: published figures only
    """

    name: _Name
    label: str
    base: str | None = None
    mode: Literal["all", "thresholded", "sampled"] = "all"
    datasets: tuple[str, ...] | None = Field(default=None, strict=False)
    seeds: int | None = Field(default=None, ge=1)
    settings: _Settings = Field(default={})
    settings_on: Mapping[str, _Settings] = {}
    published: Mapping[
        str,
        Mapping[str, _Published | Annotated[tuple[_Published, _Published], Field(strict=False)]],
    ] = {}
    runs: bool = True

    def figure(self, dataset: str, metric: str) -> Figure | None:
        """The published figure, if any."""
        value = self.published.get(dataset, {}).get(metric)
        if value is None or isinstance(value, tuple):
            return value
        return value, None


class Table(Section):
    """A table: every row is trained on every dataset, with every seed.

    metrics   columns; a dataset shows those that its reports have
    vectors   files under the data root, concatenated per word
    seeds     per row and dataset
    """

    title: str
    note: str = ""
    metrics: tuple[Annotated[str, AfterValidator(_known)], ...] = Field(strict=False, min_length=1)
    vectors: tuple[str, ...] = Field(default=(), strict=False)
    seeds: int = Field(default=3, ge=1)
    settings: _Settings = Field(default={})
    datasets: tuple[Dataset, ...] = Field(strict=False, min_length=1)
    rows: tuple[Row, ...] = Field(strict=False, min_length=1)

    @model_validator(mode="after")
    def _fits_together(self) -> Table:
        for what, items in (("datasets", self.datasets), ("rows", self.rows)):
            names = [item.name for item in items]
            twice = sorted({name for name in names if names.count(name) > 1})
            if twice:
                raise ValueError(f"{what} has '{twice[0]}' twice")
        for row in self.rows:
            self._check_row(row)
        return self

    def _check_row(self, row: Row) -> None:
        known = [dataset.name for dataset in self.datasets]
        for name in (*(row.datasets or ()), *row.settings_on, *row.published):
            _require(name, known, f"row '{row.name}' names an unknown dataset '{name}'")
        for dataset in self.datasets:
            if self.trains(row, dataset) and row.base is not None:
                what = f"dataset '{dataset.name}' has no base '{row.base}' for row '{row.name}'"
                _require(row.base, dataset.bases, what)
        for metric in (name for figures in row.published.values() for name in figures):
            what = f"row '{row.name}' publishes '{metric}', which is not a column"
            _require(metric, (*self.metrics, *_EXTRA), what)
        self._check_figures(row)

    def _check_figures(self, row: Row) -> None:
        for name, figures in row.published.items():
            for metric in figures:
                mean, deviation = row.figure(name, metric) or (0.0, None)
                largest = find_measure(metric).largest * percent_scale(metric)
                if mean > largest or (metric in _EXTRA and mean <= 0):
                    raise ValueError(f"row '{row.name}', {name}: {metric} cannot be {mean:g}")
                if (deviation or 0.0) < 0:
                    what = f"the deviation of {metric} cannot be {deviation:g}"
                    raise ValueError(f"row '{row.name}', {name}: {what}")
                if percent_scale(metric) > 1 and mean <= 1:
                    raise ValueError(f"row '{row.name}', {name}: {metric} is given in percent")

    def trains(self, row: Row, dataset: Dataset) -> bool:
        """Whether the row has runs on the dataset."""
        return row.runs and (row.datasets is None or dataset.name in row.datasets)

    def shows(self, row: Row, dataset: Dataset) -> bool:
        """Whether the dataset's section of the table has the row."""
        return self.trains(row, dataset) or dataset.name in row.published

    def chosen(
        self, rows: Sequence[str] | None = None, datasets: Sequence[str] | None = None
    ) -> tuple[tuple[Row, ...], tuple[Dataset, ...]]:
        """The rows and datasets with the given names, in table order; all for None.

        Raises:
            ConfigError: a name that the table does not have.
        """
        return _pick("row", self.rows, rows), _pick("dataset", self.datasets, datasets)


def _pick(what: str, items: tuple[_Named, ...], names: Sequence[str] | None) -> tuple[_Named, ...]:
    known = [item.name for item in items]
    for name in names or ():
        if name not in known:
            raise ConfigError(
                f"the table has no {what} '{name}'{nearest(name, known)}",
                remedy=f"Its {what}s are: {', '.join(known)}",
            )
    return tuple(item for item in items if names is None or item.name in names)


def load_table(path: Path) -> Table:
    """Read and check a table's file.

    Raises:
        ConfigError: naming the file, the key and the nearest known one.
    """
    return parse_section(Table, read_tree(path), where=str(path))
