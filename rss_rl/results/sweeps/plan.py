"""The runs of a sweep: the folder, configuration and state of each.

    OUT/DATASET[-fold-N]/ROW[,KEY=VALUE...]/seed-N   an ordinary run
    OUT/data/DATASET[-fold-N]-HASH                   data that the sweep prepared; HASH: of how

Run folders are the only record of a sweep: the same command finds in them what is finished, and
resumes the rest.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Literal

from rss_rl.components import EVERYTHING, NOTHING, Trust
from rss_rl.config import RunConfig, absolute_paths, load_config, setting
from rss_rl.data.manifest import MANIFEST_FILE
from rss_rl.data.pretrained_vectors import names_a_file
from rss_rl.errors import ConfigError
from rss_rl.packaged import find_config
from rss_rl.results.sweeps.figures import recorded
from rss_rl.results.sweeps.spec import Dataset, Row, Settings, Spec
from rss_rl.runs.run_directory import CONFIG_FILE, REPORT_FILE, RunDirectory

State = Literal["missing", "interrupted", "finished", "changed"]
DATA_FOLDER = "data"
_LONGEST = 200
_PLAIN = re.compile(r"[A-Za-z0-9_.=+-]{1,40}")
_IN_PROCESS: Settings = {"sampler.backend": "local", "learner.actors": 0}


@dataclass(frozen=True)
class Fold:
    """A dataset, or a fold of it.

    number   of the fold, None: all of it
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
    folds = []
    for number in range(dataset.folds) if dataset.folds else [None]:
        cut = {} if number is None else {"fold": number, "folds": dataset.folds}
        settings = {**dataset.options, **cut}.items()
        # As texts, as on the command line: 300 and "300" are the same.
        options = {key: v if isinstance(v, str) else json.dumps(v) for key, v in settings}
        recipe = json.dumps(
            [
                dataset.table or dataset.source,
                sorted(options.items()),
                *map(str, vectors),
                dataset.dim,
            ]
        )
        fold = Fold(name, dataset, number, options, vectors, dataset.data or "")
        prepared = str(out / DATA_FOLDER / f"{fold.name}-{_digest(recipe)}")
        folds.append(replace(fold, data=fold.data or prepared))
    return folds


@dataclass(frozen=True)
class Base:
    """The configuration that a sweep changes.

    file      of it; settings: that come before those of the sweep. trust: in components it names
    """

    name: str
    file: Path
    settings: Settings
    trust: Trust = EVERYTHING


@dataclass(frozen=True)
class PlannedRun:
    """A run.

    row     its name
    point   values of the axes
    modes   selection modes whose scores are shown, its own first
    judged  see `Spec`
    """

    fold: Fold
    row: str
    point: Settings
    path: Path
    config: RunConfig
    modes: tuple[str, ...]
    judged: bool = False

    @property
    def name(self) -> str:
        """Dataset, row, point and seed, for messages."""
        return "/".join(self.path.parts[-3:])


def find_base(name: str) -> Base:
    """The base that a specification names: a configuration, or the folder of a run.

    Raises:
        ConfigError: neither.
    """
    if (Path(name) / CONFIG_FILE).is_file():
        return Base(Path(name).resolve().name, Path(name) / "config.yaml", {}, NOTHING)
    file = find_config(name)
    trust = NOTHING if (file.parent / CONFIG_FILE).is_file() else EVERYTHING
    return Base(file.stem, file, {}, trust)


def plan_runs(spec: Spec, base: Base, out: Path) -> list[PlannedRun]:
    """The runs of a sweep, but for rows that are recorded, in the order of training.

    Ordered by seed and fold, so that an early table has every row.

    Raises:
        ConfigError: naming the setting that is not valid.
    """
    datasets = dict(spec.datasets)
    if not datasets:
        data = configure(base, [spec.settings]).data
        name = re.sub(r"[^\w.-]", "-", Path(data).name)
        datasets = {"texts" if name in ("", DATA_FOLDER) else name: Dataset(data=data)}
    if DATA_FOLDER in datasets:
        raise ConfigError(
            f"the folder {DATA_FOLDER} of a sweep is for the data that it prepares",
            where=f"datasets.{DATA_FOLDER}",
            remedy="Give the dataset another name",
        )
    known = {*recorded(spec)["row"]}
    rows = {n: row for n, row in (spec.rows or {base.name: Row()}).items() if n not in known}
    planned: list[tuple[int, int, PlannedRun]] = []
    for (name, dataset), (row_name, row) in product(datasets.items(), rows.items()):
        start = find_base(dataset.base) if dataset.base else base
        axes = spec.axes if row.axes is None else row.axes
        folds, seeds = folds_of(spec, name, dataset, out), enumerate(_seeds(spec, dataset, row))
        layers = _layers(spec, name, dataset, row)
        points = [dict(zip(axes, values, strict=True)) for values in product(*axes.values())]
        for point, (turn, seed), fold in product(points, seeds, folds):
            config = configure(start, [*layers, point])
            run = _run(out, fold, row_name, row, point, config, seed)
            planned.append((turn, fold.number or 0, replace(run, judged=spec.judged)))
    return [run for _, _, run in sorted(planned, key=lambda item: item[:2])]


def _seeds(spec: Spec, dataset: Dataset, row: Row) -> Sequence[int]:
    """Those of the sweep, or of the dataset or row if these want fewer."""
    counts = [part.seeds for part in (spec, dataset, row) if part.seeds is not None]
    return min((range(each) if isinstance(each, int) else each for each in counts), key=len)


def _run(
    out: Path, fold: Fold, name: str, row: Row, point: Settings, config: RunConfig, seed: int
) -> PlannedRun:
    parts = [name]
    for key, value in point.items():
        text = value if isinstance(value, str) else json.dumps(value)
        plain = text if _PLAIN.fullmatch(text) else _digest(text)
        parts.append(f"{key}={plain}")
    folder = ",".join(parts)
    folder = folder if len(folder) <= _LONGEST else f"{name},{_digest(folder)}"
    path = out / fold.name / folder / f"seed-{seed}"
    resolved = absolute_paths(config.model_copy(update={"seed": seed, "data": fold.data}))
    modes = ("thresholded" if config.selects else "all", *row.also)
    return PlannedRun(fold, name, point, path, resolved, modes)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def _layers(spec: Spec, name: str, dataset: Dataset, row: Row) -> list[Settings]:
    return [spec.settings, dataset.settings, row.settings, row.settings_on.get(name, {})]


def configure(base: Base, layers: Sequence[Settings]) -> RunConfig:
    """The configuration of a run, without seed and data; later layers win.

    Raises:
        ConfigError: naming the setting that is not valid.
    """
    parts = [base.settings, *layers, _IN_PROCESS]
    overrides = [setting(*pair) for part in parts for pair in part.items()]
    return load_config(base.file, overrides, base.trust)


def state_of(run: PlannedRun) -> State:
    """The state of a run; `changed`: made with other settings or data.

    Raises:
        CheckpointError: its folder is damaged.
    """
    if not (run.path / CONFIG_FILE).is_file():
        return "missing"
    before = RunDirectory.open(run.path).config
    if before != json.loads(run.config.model_dump_json()) or _other_data(run):
        return "changed"
    if not (run.path / REPORT_FILE).is_file():
        return "interrupted"
    judged = not run.judged or "trojan" in RunDirectory.open(run.path).read_report()
    return "finished" if judged else "interrupted"


def _other_data(run: PlannedRun) -> bool:
    copied, present = run.path / "inputs" / MANIFEST_FILE, Path(run.config.data, MANIFEST_FILE)
    return copied.is_file() and present.is_file() and copied.read_bytes() != present.read_bytes()
