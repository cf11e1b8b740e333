"""Training and inference times, measured after training for all rows of a dataset in turn.

Times taken during training would not be comparable, as other load on the machine varies. Here, one
process holds all rows of a dataset with their final weights and runs a few updates of each in turn,
repeatedly; a row's time is the median of its turns. Timed are an update of the last phase (for
ReSAN: sampling, classifier and policy), and a pass over test in the row's mode, metrics included.
Reading timing.json does not need torch.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from itertools import product
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, TypeAdapter

from rss_rl.data.store import Prepared, open_prepared
from rss_rl.durable import disk_errors, replace_file
from rss_rl.errors import CheckpointError, RssError
from rss_rl.json_files import first_fault, read_json
from rss_rl.results.output import FREE_SPACE
from rss_rl.results.tables.plan import Plan, PlannedRun, state_of
from rss_rl.results.tables.spec import Dataset

TIMING_FILE = "timing.json"
_VERSION = 1
_ENDLESS = 10**9
_WARM_UPDATES = 3
"""Untimed updates of each row at the start."""
_TURNS, _UPDATES = 5, 4
"""Turns per row, and updates per turn."""
_PASSES = 3
"""Passes over test."""
_Seconds = Annotated[tuple[float, ...], Field(min_length=1)]


@dataclass(frozen=True)
class Timing:
    """Times of one row.

    update_s     seconds per update, for each turn
    inference_s  seconds of each pass over test
    updates_an_epoch   an epoch takes median(update_s) times this
    run          the measured configuration, see `identity`
    """

    update_s: _Seconds
    inference_s: _Seconds
    updates_an_epoch: int
    run: str

    @property
    def epoch(self) -> float:
        """Seconds of training on every example once."""
        return statistics.median(self.update_s) * self.updates_an_epoch

    @property
    def inference(self) -> float:
        """Seconds of a pass over test."""
        return statistics.median(self.inference_s)


_Timings = dict[str, dict[str, Timing]]
"""By dataset and row."""


def identity(run: PlannedRun) -> str:
    """A hash of the run's configuration, without data path and seed."""
    tree = run.config.model_dump(mode="json", exclude={"data", "seed"})
    return hashlib.sha256(json.dumps(tree, sort_keys=True).encode()).hexdigest()[:16]


def read_timings(path: Path) -> tuple[dict[str, Any], _Timings]:
    """The machine, and timings by dataset and row; both empty without a file.

    Raises:
        CheckpointError: the file is damaged.
    """
    if not path.is_file():
        return {}, {}
    remedy = "Remove it; the times are measured again"
    tree = read_json(path, remedy=remedy)
    try:
        if tree["schema_version"] != _VERSION:
            raise ValueError(f"schema version {tree['schema_version']!r}")
        return dict(tree["machine"]), TypeAdapter(_Timings).validate_python(tree["datasets"])
    except (KeyError, TypeError, ValueError) as error:
        what = f"no timings: {first_fault(error)}"
        raise CheckpointError(what, where=str(path), remedy=remedy) from error


def write_timings(path: Path, described: Mapping[str, Any], timings: _Timings) -> None:
    """Write timings and a description of the machine."""
    datasets = TypeAdapter(_Timings).dump_python(timings, mode="json")
    tree = {"schema_version": _VERSION, "machine": dict(described), "datasets": datasets}
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, json.dumps(tree, indent=2) + "\n")


def fresh_timings(plan: Plan) -> tuple[dict[str, Any], _Timings]:
    """The machine and timings of the plan's folder, for rows with unchanged configuration.

    Raises:
        CheckpointError: the file is damaged.
    """
    described, timings = read_timings(plan.folder / TIMING_FILE)
    current = {(run.fold.dataset.name, run.row.name): identity(run) for run in plan.runs}
    fresh = {
        dataset: {name: t for name, t in rows.items() if current.get((dataset, name)) == t.run}
        for dataset, rows in timings.items()
    }
    return described, fresh


def time_rows(
    plan: Plan,
    *,
    anew: bool,
    stop: Callable[[], bool] = lambda: False,
    tell: Callable[[str], None] = lambda _: None,
) -> None:
    """Measure each dataset with a finished but untimed row, all of its rows together.

    Args:
        anew: measure all datasets again.
        stop: polled between turns; datasets measured by then are kept.
        tell: called with a line about each dataset, also if it cannot be measured.

    Raises:
        CheckpointError: the file of times is damaged or cannot be written.
    """
    path = plan.folder / TIMING_FILE
    described, timings = read_timings(path)
    _, fresh = fresh_timings(plan)
    for dataset in plan.datasets:
        runs, known = _first_runs(plan, dataset), fresh.get(dataset.name, {})
        if not runs or stop() or (not anew and all(run.row.name in known for run in runs)):
            continue
        tell(f"measuring times on {dataset.name}: {', '.join(run.row.name for run in runs)}")
        here = machine()
        try:
            measured = measure(runs, stop=stop)
        except RssError as error:
            # The data may be gone; the table is still written with its scores.
            tell(f"no times on {dataset.name}: {error}")
            continue
        if measured is not None:
            # Older times of other rows are dropped: they were not measured in the same process.
            described, timings = here, timings | {dataset.name: measured}
            with disk_errors(plan.folder, "the table cannot be written", FREE_SPACE):
                write_timings(path, described, timings)


def _first_runs(plan: Plan, dataset: Dataset) -> list[PlannedRun]:
    """A finished run of each row, all of one fold."""
    finished = [
        run for run in plan.runs if run.fold.dataset is dataset and state_of(run) == "finished"
    ]
    first: dict[str, PlannedRun] = {}
    for run in finished:
        if run.fold.name == finished[0].fold.name:
            first.setdefault(run.row.name, run)
    return [first[row.name] for row in plan.rows if row.name in first]


class _TimedRow:
    """A row with its final weights, to be timed."""

    def __init__(self, run: PlannedRun, prepared: Prepared) -> None:
        from rss_rl.logs.events import NO_LOG
        from rss_rl.runs.checkpoint import load_checkpoint
        from rss_rl.training.learner import LocalLearner
        from rss_rl.training.roles import LocalRoles
        from rss_rl.training.session import Session

        phase = run.config.phases[-1].model_copy(update={"steps": _ENDLESS, "patience": None})
        config = run.config.model_copy(update={"phases": (phase,)})
        self._run, self._learner = run, LocalLearner(config, prepared)
        self._learner.load_tensors(load_checkpoint(run.path, "best").tensors)
        self._session = Session(
            config, prepared, self._learner, lambda: LocalRoles().backend(config, prepared, NO_LOG)
        )
        self._update_s: list[float] = []
        self._inference_s: list[float] = []

    def train(self, updates: int, *, counts: bool) -> None:
        """Run some updates; if the turn counts, record the seconds per update."""
        started = time.perf_counter()
        for _ in range(updates):
            self._session.update()
        if counts:
            self._update_s.append((time.perf_counter() - started) / updates)

    def infer(self) -> None:
        """Run a pass over test and record its seconds."""
        started = time.perf_counter()
        self._learner.evaluate("test", [self._run.row.mode])
        self._inference_s.append(time.perf_counter() - started)

    def timing(self) -> Timing:
        """The recorded times."""
        epoch = self._session.updates_per_epoch
        return Timing(tuple(self._update_s), tuple(self._inference_s), epoch, identity(self._run))

    def close(self) -> None:
        """Release the sampler."""
        self._session.close()


def measure(
    runs: Sequence[PlannedRun], *, stop: Callable[[], bool] = lambda: False
) -> dict[str, Timing] | None:
    """Time finished runs of one fold, one of each row; None if stopped.

    Raises:
        RssError: a run cannot be opened.
    """
    prepared = open_prepared(runs[0].fold.prepared)
    rows = {run.row.name: _TimedRow(run, prepared) for run in runs}
    # Training first, since samplers and learner share the memory of the weights.
    turns: list[Callable[[_TimedRow], None]]
    turns = [lambda row: row.train(_WARM_UPDATES, counts=False)]
    turns += [lambda row: row.train(_UPDATES, counts=True)] * _TURNS
    turns += [_TimedRow.infer] * _PASSES
    try:
        for turn, row in product(turns, rows.values()):
            if stop():
                return None
            turn(row)
    finally:
        for row in rows.values():
            row.close()
    return {name: row.timing() for name, row in rows.items()}


def machine() -> dict[str, Any]:
    """The hardware and software that times depend on."""
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "torch": metadata.version("torch"),
        "load_before": [round(load, 2) for load in os.getloadavg()],
    }


def _processor() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return platform.processor()
    names = [line.partition(":")[2].strip() for line in text.splitlines() if "model name" in line]
    return names[0] if names else platform.processor()
