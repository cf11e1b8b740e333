"""A trial: one choice of settings, trained with one or several seeds, and its record.

    trials/003/trial.json   settings, state, core seconds, evaluations of each seed
    trials/003/seed-0/      an ordinary run, without test scores

Seeds are trained interleaved in one process, each up to its next evaluation in turn, so that means
over seeds are available from the first evaluation. Only evaluations in the last phase's mode count:
of selections, or of all tokens if the last phase does not sample. Progress is the number of updates
since the first of these.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Literal, NamedTuple

from pydantic import TypeAdapter

from rss_rl.config import RunConfig
from rss_rl.data.store import open_prepared
from rss_rl.durable import disk_errors, replace_file
from rss_rl.errors import CheckpointError, RssError
from rss_rl.json_files import canonical_json, first_fault, read_json
from rss_rl.learners.share_control import merit
from rss_rl.metrics.run_metrics import BestMetric
from rss_rl.results.output import FREE_SPACE
from rss_rl.results.tuning.space import Settings
from rss_rl.runs.run_directory import CONFIG_FILE, REPORT_FILE, lock_holder
from rss_rl.training.run import train
from rss_rl.training.trainer import Evaluated, Stopped, find_best_metric

State = Literal["running", "finished", "stopped", "failed"]
WORST = -1e9
"""Merit if the metric is undefined: finite, so that a scheduler can compare it."""
_RECORD = "trial.json"
_SPLITS = ("dev",)
_LOCK_WAIT_S = 60.0
_LOCK_PAUSE_S = 0.25


@dataclass(frozen=True)
class Trial:
    """One choice of settings.

    number   from 0, the unchanged base
    folder   of its record and runs
    config   of its runs, except the seed
    seeds    number of runs, with the configuration's seed, seed + 1, ...
    """

    number: int
    folder: Path
    settings: Settings
    config: RunConfig
    seeds: int = 1

    def runs(self) -> list[tuple[Path, RunConfig]]:
        """Directory and configuration of each seed."""
        seeds = range(self.config.seed, self.config.seed + self.seeds)
        return [
            (self.folder / f"seed-{seed}", self.config.model_copy(update={"seed": seed}))
            for seed in seeds
        ]


class Evaluation(NamedTuple):
    """An evaluation of one seed on dev.

    merit    as for checkpoints: any that misses the target share is below all that meet it
    promise  softer, for use during training while the share oscillates about its target: each
             point off the target costs one point of the metric
    """

    phase: str
    update: int
    value: float | None
    kept: float
    merit: float
    promise: float


@dataclass
class TrialRecord:
    """The state of a trial, kept in a file so that it survives a kill.

    state        `running` also if interrupted; `stopped`: by the scheduler
    reason       of a failure
    core_s       CPU seconds used by its processes
    evaluations  of each seed, in order
    """

    number: int
    settings: Settings
    state: State = "running"
    reason: str = ""
    core_s: float = 0.0
    evaluations: list[list[Evaluation]] = field(default_factory=list)


_RECORDS = TypeAdapter(TrialRecord)


class Point(NamedTuple):
    """An evaluation that all seeds have: means over seeds.

    update    of the run. progress: counted updates
    value     of the metric now. kept: share of tokens now
    best, best_kept, merit  of the best checkpoint of the phase so far
    promise   best of the phase so far
    """

    phase: str
    update: int
    progress: int
    value: float | None
    kept: float
    best: float | None
    best_kept: float
    merit: float
    promise: float


def points(record: TrialRecord) -> list[Point]:
    """The evaluations that all seeds of a trial have, in order."""
    curves = [_curve(own) for own in record.evaluations]
    if not curves:
        return []
    shared = [moment for moment in curves[0] if all(moment in other for other in curves[1:])]
    return [_mean(moment, [curve[moment] for curve in curves]) for moment in shared]


def _curve(evaluations: Sequence[Evaluation]) -> dict[tuple[str, int], Point]:
    """The points of one seed, by phase and progress."""
    curve: dict[tuple[str, int], Point] = {}
    best, promise = evaluations[0] if evaluations else None, WORST
    for now in evaluations:
        assert best is not None
        promise = max(now.promise, promise if now.phase == best.phase else WORST)
        if now.phase != best.phase or now.merit > best.merit:
            best = now
        progress = now.update - evaluations[0].update
        reached = (best.value, best.kept, best.merit, promise)
        curve[now.phase, progress] = Point(
            now.phase, now.update, progress, now.value, now.kept, *reached
        )
    return curve


def _mean(moment: tuple[str, int], found: Sequence[Point]) -> Point:
    def known(values: Sequence[float | None]) -> float | None:
        numbers = [value for value in values if value is not None]
        return fmean(numbers) if len(numbers) == len(values) else None

    return Point(
        moment[0],
        max(point.update for point in found),
        moment[1],
        known([point.value for point in found]),
        fmean(point.kept for point in found),
        known([point.best for point in found]),
        fmean(point.best_kept for point in found),
        fmean(point.merit for point in found),
        fmean(point.promise for point in found),
    )


def read_record(folder: Path) -> TrialRecord | None:
    """The record of the trial in `folder`; None if it never began.

    Raises:
        CheckpointError: it is damaged.
    """
    file = folder / _RECORD
    if not file.exists():
        return None
    remedy = f"Remove {folder} to train that trial again"
    tree = read_json(file, remedy=remedy)
    try:
        return _RECORDS.validate_python(tree)
    except ValueError as error:
        raise CheckpointError(
            f"no record of a trial: {first_fault(error)}", where=str(file), remedy=remedy
        ) from error


def write_record(folder: Path, record: TrialRecord) -> None:
    """Replace the record of the trial in `folder`.

    Raises:
        CheckpointError: the write fails.
    """
    tree = _RECORDS.dump_python(record, mode="json")
    with disk_errors(folder, "the trial cannot be written", FREE_SPACE):
        folder.mkdir(parents=True, exist_ok=True)
        replace_file(folder / _RECORD, canonical_json(tree, str(folder)) + "\n")


def train_trial(
    trial: Trial, stop: Callable[[], bool], tell: Callable[[TrialRecord], None]
) -> TrialRecord:
    """Train or resume a trial; failures are recorded as its state and never raise.

    Args:
        stop: polled after each update; True leaves it `running`, to be resumed.
        tell: called with the record after each evaluation; may raise SystemExit to end the trial.
    """
    record = read_record(trial.folder) or TrialRecord(trial.number, trial.settings)
    began = time.process_time() - record.core_s
    streams: list[Iterator[Evaluation]] = []
    try:
        write_record(trial.folder, record)
        _wait_for_locks(trial)
        record.evaluations = record.evaluations or [[] for _ in range(trial.seeds)]
        streams = [_evaluations(path, config, stop) for path, config in trial.runs()]
        for _ in _rounds(streams, record):
            record.core_s = round(time.process_time() - began, 3)
            write_record(trial.folder, record)
            tell(record)
        record.state = "finished"
    except _Interrupted:
        pass
    except RssError as error:
        record.state, record.reason = "failed", str(error)
    except Exception as error:  # one failed trial must not stop the others
        record.state, record.reason = "failed", f"{type(error).__name__}: {error}"
    finally:
        for stream in streams:
            stream.close()  # type: ignore[attr-defined]
    record.core_s = round(time.process_time() - began, 3)
    write_record(trial.folder, record)
    return record


class _Interrupted(Exception):
    """Training was asked to stop."""


def _rounds(streams: Sequence[Iterator[Evaluation]], record: TrialRecord) -> Iterator[None]:
    """Advance each seed by one evaluation in turn until all have ended; yields after a round."""
    going = dict(enumerate(streams))
    while going:
        for seed, stream in list(going.items()):
            found = next(stream, None)
            if found is None:
                del going[seed]
            else:
                _add(record.evaluations[seed], found)
        if going:
            yield


def _add(evaluations: list[Evaluation], found: Evaluation) -> None:
    """Append an evaluation; a resumed run may repeat earlier ones, with equal results."""
    while evaluations and evaluations[-1].update > found.update:
        evaluations.pop()
    if evaluations and evaluations[-1][:2] == found[:2]:
        evaluations.pop()
    evaluations.append(found)


def _evaluations(path: Path, config: RunConfig, stop: Callable[[], bool]) -> Iterator[Evaluation]:
    """Train or resume a run; yields the evaluations that count."""
    if (path / REPORT_FILE).is_file():
        return
    metric = find_best_metric(config, open_prepared(config.data))
    mode = "thresholded" if config.selects else "all"
    for event in train(config, path, resume=True, stop=stop, splits=_SPLITS):
        if isinstance(event, Stopped):
            raise _Interrupted
        if isinstance(event, Evaluated) and mode in event.metrics:
            yield _evaluation(event, event.metrics[mode], metric, config)


def _evaluation(
    event: Evaluated, metrics: dict[str, float], metric: BestMetric, config: RunConfig
) -> Evaluation:
    value = metrics.get(metric.name, math.nan)
    if not math.isfinite(value):
        return Evaluation(event.phase, event.update, None, metrics["kept"], WORST, WORST)
    better = -value if metric.lower_is_better else value
    target = config.reward.target_share
    off = 0.0 if target is None else abs(metrics["kept"] - target)
    worth = merit(better, metrics, config.reward), better - off
    return Evaluation(event.phase, event.update, value, metrics["kept"], *worth)


def _wait_for_locks(trial: Trial) -> None:
    """Wait for the run locks: processes of a killed search may live on for some seconds."""
    deadline = time.monotonic() + _LOCK_WAIT_S
    paths = [path for path, _ in trial.runs() if (path / CONFIG_FILE).is_file()]
    while time.monotonic() < deadline and any(lock_holder(path) for path in paths):
        time.sleep(_LOCK_PAUSE_S)
