"""The runs of a table: the directory, configuration and state of each."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from rss_rl.components import Trust
from rss_rl.config import RunConfig, load_config, options_that_fit
from rss_rl.data.manifest import MANIFEST_FILE, Manifest
from rss_rl.errors import CheckpointError, ConfigError, DataError, RssError
from rss_rl.json_files import read_json
from rss_rl.packaged import find_config
from rss_rl.results.tables.spec import Dataset, Row, Table
from rss_rl.runs.run_directory import CONFIG_FILE, REPORT_FILE, RunDirectory

State = Literal["missing", "interrupted", "finished", "changed"]
DATA_FOLDER = "data"


@dataclass(frozen=True)
class Fold:
    """A fold of a dataset, or the whole dataset.

    number    of the fold; None for the whole dataset
    prepared  directory of its data, absolute
    """

    dataset: Dataset
    number: int | None
    prepared: Path

    @property
    def name(self) -> str:
        """Name of its directories."""
        name = self.dataset.name
        return name if self.number is None else f"{name}-fold-{self.number}"


@dataclass(frozen=True)
class PlannedRun:
    """One run: a row on a fold with a seed, in the directory `path`."""

    row: Row
    fold: Fold
    seed: int
    path: Path
    config: RunConfig

    @property
    def label(self) -> str:
        """Fold, row and seed, for messages."""
        return f"{self.fold.name}/{self.row.name}/seed-{self.seed}"


@dataclass(frozen=True)
class Plan:
    """The runs of the chosen part of a table, in the order of training.

    folder  of the table's runs and files
    """

    name: str
    table: Table
    folder: Path
    rows: tuple[Row, ...]
    datasets: tuple[Dataset, ...]
    runs: tuple[PlannedRun, ...]

    def runs_of(self, row: Row, dataset: Dataset) -> list[PlannedRun]:
        """A row's runs on a dataset."""
        return [r for r in self.runs if r.row.name == row.name and r.fold.dataset is dataset]


def plan_runs(
    name: str,
    table: Table,
    out: Path,
    *,
    rows: Sequence[str] | None = None,
    datasets: Sequence[str] | None = None,
    seeds: Sequence[int] | None = None,
) -> Plan:
    """Plan the runs of a table under the directory `out`.

    Runs are ordered by seed and fold, so that an early table has every row. A run that another
    table under `out` has finished with the same settings and data is read from there.

    Raises:
        ConfigError: a name that the table does not have, or an invalid configuration of a row.
    """
    out = out.resolve()
    if name == DATA_FOLDER:
        raise ConfigError(f"a table cannot be called '{name}'", remedy="Rename its file")
    chosen_rows, chosen_datasets = table.chosen(rows, datasets)
    runs: list[tuple[tuple[int, int], PlannedRun]] = []
    for dataset in chosen_datasets:
        folds = _folds(dataset, out)
        trained = [row for row in chosen_rows if table.trains(row, dataset)]
        configs = [configure(name, table, row, dataset) for row in trained]
        for fold in folds:
            for row, config in zip(trained, configs, strict=True):
                for turn, seed in enumerate(_seeds(table, row, dataset, seeds)):
                    path = out / name / fold.name / row.name / f"seed-{seed}"
                    changes = {"seed": seed, "data": str(fold.prepared)}
                    own = config.model_copy(update=changes)
                    order = turn, fold.number or 0
                    runs.append((order, PlannedRun(row, fold, seed, path, own)))
    runs.sort(key=lambda item: item[0])
    ordered = tuple(_finished_twin(run, out) for _, run in runs)
    return Plan(name, table, out / name, chosen_rows, chosen_datasets, ordered)


def _finished_twin(run: PlannedRun, out: Path) -> PlannedRun:
    """The same run finished by another table if there is one, else the planned one."""
    if run.path.exists():
        return run
    for report in sorted(out.glob(f"*/{run.fold.name}/*/seed-{run.seed}/{REPORT_FILE}")):
        twin = replace(run, path=report.parent)
        try:
            if state_of(twin) == "finished":
                return twin
        except CheckpointError:  # damaged: an error of the other table
            continue
    return run


def _folds(dataset: Dataset, out: Path) -> list[Fold]:
    if dataset.prepared is not None:
        return [Fold(dataset, None, Path(dataset.prepared).resolve())]
    numbers = range(dataset.folds) if dataset.folds else [None]
    folds = [Fold(dataset, number, out) for number in numbers]
    return [replace(fold, prepared=out / DATA_FOLDER / fold.name) for fold in folds]


def _seeds(table: Table, row: Row, dataset: Dataset, asked: Sequence[int] | None) -> Sequence[int]:
    if asked is not None:
        return asked
    limits = (table.seeds, row.seeds, dataset.seeds)
    return range(min(limit for limit in limits if limit is not None))


def configure(name: str, table: Table, row: Row, dataset: Dataset) -> RunConfig:
    """The configuration of a row's runs on a dataset, without seed and data path.

    Raises:
        ConfigError: naming table and row.
    """
    base = dataset.bases[row.base or next(iter(dataset.bases))]
    for_all = {**base.settings, **table.settings, **dataset.settings}
    own = {**row.settings, **row.settings_on.get(dataset.name, {})}
    file = find_config(base.config)
    fitting = options_that_fit(file, for_all, own)
    settings = [f"{key}={json.dumps(value)}" for key, value in {**fitting, **own}.items()]
    where = f"table {name}, row {row.name} on {dataset.name}"
    try:
        config = load_config(file, settings)
    except RssError as error:
        message = f"{error.where}: {error.what}" if error.where else error.what
        raise ConfigError(message, where=where, remedy=error.remedy) from error
    if config.sampler.backend != "local" or config.learner.actors:
        raise ConfigError(
            "runs of a table have their sampler and learner in one process",
            where=where,
            remedy="Set sampler.backend=local and learner.actors=0; --jobs trains runs in parallel",
        )
    _check_mode(row, config, where)
    return config


def _check_mode(row: Row, config: RunConfig, where: str) -> None:
    modes = ["thresholded", "sampled"] if config.selects else ["all"]
    if config.selects and config.evaluation.all_tokens:
        modes.append("all")
    if row.mode not in modes:
        raise ConfigError(
            f"its runs are not scored with mode '{row.mode}'",
            where=where,
            remedy=f"Give mode: {' or '.join(modes)}",
        )


def state_of(run: PlannedRun) -> State:
    """The state of a run; `changed`: trained with another configuration or other data.

    Raises:
        CheckpointError: its directory is damaged.
    """
    if not (run.path / CONFIG_FILE).is_file():
        return "missing"
    directory = RunDirectory.open(run.path)
    try:
        before = directory.parsed_config(Trust.of(run.config.model_dump(mode="json")))
    except ConfigError:  # a key that was removed since
        return "changed"
    # Ignore the data path: a directory of tables can be moved.
    if before.model_copy(update={"data": run.config.data}) != run.config or _other_data(run):
        return "changed"
    return "finished" if (run.path / REPORT_FILE).is_file() else "interrupted"


def _other_data(run: PlannedRun) -> bool:
    own, present = (run.path / "inputs", run.fold.prepared)
    if not ((own / MANIFEST_FILE).is_file() and (present / MANIFEST_FILE).is_file()):
        return False
    before = read_json(own / MANIFEST_FILE, remedy="Remove the run's directory to train it again")
    remedy = "Remove that directory to prepare the data again"
    if before == read_json(present / MANIFEST_FILE, remedy=remedy):
        return False
    try:  # an earlier version may have written the same otherwise
        return Manifest.load(own) != Manifest.load(present)
    except DataError:
        return True
