"""A search on disk: its folder, what it was begun with, its trials, and when it is over.

OUT/tune.json    space, configuration and seeds that it was begun with
OUT/trials/NNN   a trial, see `trial`
OUT/tune.md, trials.csv, tune.png, base.yaml, best.yaml   what came of it
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

from rss_rl.config import RunConfig
from rss_rl.data.store import open_prepared
from rss_rl.durable import disk_errors, file_lock, replace_file
from rss_rl.errors import CheckpointError, ConfigError
from rss_rl.json_files import read_json
from rss_rl.metrics.run_metrics import BestMetric
from rss_rl.results.output import FREE_SPACE, check_folder
from rss_rl.results.tuning.space import Base, Settings, Space, draw_settings
from rss_rl.results.tuning.trial import Trial, TrialRecord, read_record
from rss_rl.storage import is_uri
from rss_rl.training.trainer import find_best_metric

REDUCTION = 3
"""Of successive halving: the best third of the trials that reach a rung continue."""
_RUNGS = 2
_MANIFEST, _TRIALS, _LOCK = "tune.json", "trials", "tune.lock"
_GUESS = 36
"""Evaluations of a run whose phases end by patience, for where the rungs are."""
_FAILURES = 5
"""Without a single trial that works, after which no more are begun."""


@dataclass(frozen=True)
class Study:
    """A search for settings in a folder.

    folder  absolute. seeds: of each trial
    """

    folder: Path
    space: Space
    base: Base
    seeds: int

    @cached_property
    def config(self) -> RunConfig:
        """Of the trial with the configuration as it is."""
        return self.base.configure({})

    @cached_property
    def metric(self) -> BestMetric:
        """What trials are compared by, on dev."""
        return find_best_metric(self.config, open_prepared(self.config.data))

    @cached_property
    def updates(self) -> int:
        """Updates of a trial that count, see `trial`; a guess where patience ends a phase."""
        sampled = self.config.phases[-1].selection == "sampled"
        steps = [p.steps for p in self.config.phases if (p.selection == "sampled") == sampled]
        if None in steps:
            return _GUESS * self.config.evaluation.every
        return sum(step for step in steps if step)

    @cached_property
    def rungs(self) -> list[int]:
        """Progress at which trials are compared and the worse ones stopped.

        Not before the second evaluation, nor while a scheduled share is still falling.
        """
        first = max(2 * self.config.evaluation.every, -(-self.updates // REDUCTION**_RUNGS))
        if falling := self.config.reward.share_schedule * (self.config.policy_updates or 0):
            first = max(first, math.ceil(falling) + self.config.evaluation.every)
        rungs = (first * REDUCTION**number for number in range(_RUNGS))
        return [rung for rung in rungs if rung < self.updates]

    def trials(self) -> Iterator[Trial]:
        """Trial 0, 1, ... until the space is used up."""
        for number, settings in enumerate(draw_settings(self.space, self.base, self.config.seed)):
            yield self.trial(number, settings)

    def trial(self, number: int, settings: Settings) -> Trial:
        """The trial of a number."""
        config = self.base.configure(settings)
        folder = self.folder / _TRIALS / f"{number:03}"
        return Trial(number, folder, settings, config, self.seeds)

    def records(self) -> list[TrialRecord]:
        """Of all trials that were begun, by number.

        Raises:
            CheckpointError: one is damaged.
        """
        found = (read_record(path) for path in sorted((self.folder / _TRIALS).glob("[0-9]*")))
        return sorted((r for r in found if r is not None), key=lambda record: record.number)

    def unfinished(self) -> list[Trial]:
        """Trials that were interrupted."""
        return [self.trial(r.number, r.settings) for r in self.records() if r.state == "running"]

    def fresh(self) -> Iterator[Trial]:
        """Trials that were never begun."""
        begun = {record.number for record in self.records()}
        return (trial for trial in self.trials() if trial.number not in begun)

    def over(self, budget_s: float) -> bool:
        """Whether no trial is left to resume, and none may be begun.

        Args:
            budget_s: seconds of a core for all trials.
        """
        records = self.records()
        if any(record.state == "running" for record in records):
            return False
        return sum(record.core_s for record in records) >= budget_s or self.hopeless(records)

    @staticmethod
    def hopeless(records: list[TrialRecord]) -> bool:
        """Whether so many trials failed, and none did not, that others would fail, too."""
        failed = sum(record.state == "failed" for record in records)
        return failed >= _FAILURES and failed == len(records)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other processes from searching in the folder.

        Raises:
            CheckpointError: one does.
        """
        busy = CheckpointError(
            "another process searches there",
            where=str(self.folder),
            remedy="Wait for it, stop it, or give another --out",
        )
        with ExitStack() as stack:
            with disk_errors(self.folder, "the search cannot be written", FREE_SPACE):
                stack.enter_context(file_lock(self.folder / _LOCK, busy))
            yield


def open_study(
    folder: Path, space: Space, base: Base, seeds: int = 1, *, begin: bool = True
) -> Study:
    """Begin a search in `folder`, or resume the one that is there.

    Args:
        begin: write down what it is begun with; False leaves the disk as it is.

    Raises:
        CheckpointError: another one is there, or the folder cannot be written.
        ConfigError: there is nothing to search.
    """
    folder = folder.absolute()
    study = Study(folder, space, _with_absolute_data(base), seeds)
    if next(islice(study.trials(), 1, None), None) is None:
        raise ConfigError(
            "no settings of this space differ from the configuration", where=space.where
        )
    _ = study.metric  # raises where dev has none
    present = _manifest(study)
    manifest = folder / _MANIFEST
    if not manifest.exists():
        if not begin:
            return study
        check_folder(folder, "search")
        _refuse_strangers(folder)
        with disk_errors(folder, "the search cannot be written", FREE_SPACE):
            replace_file(manifest, json.dumps(present, indent=2) + "\n")
    elif changed := _changed(read_json(manifest, remedy=_ELSEWHERE), present):
        raise CheckpointError(
            f"a search was begun there with other values of {', '.join(changed)}",
            where=str(folder),
            remedy=_ELSEWHERE,
        )
    return study


_ELSEWHERE = "Give the same space, configuration and --seeds, or another --out"


def _with_absolute_data(base: Base) -> Base:
    data = str(base.tree["data"])
    return (
        base if is_uri(data) else Base(dict(base.tree, data=str(Path(data).resolve())), base.where)
    )


def _manifest(study: Study) -> dict[str, Any]:
    """Plain JSON data, as it is read back."""
    config = study.config.model_dump(mode="json")
    tree = {"space": study.space.as_tree(), "configuration": config, "seeds": study.seeds}
    manifest: dict[str, Any] = json.loads(json.dumps(tree))
    return manifest


def _changed(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """The parts of the manifest, and the sections in them, that differ."""
    changed = []
    for name, value in now.items():
        other = before.get(name)
        if isinstance(value, dict) and isinstance(other, dict):
            keys = sorted({*value, *other})
            changed += [f"{name} {key}" for key in keys if value.get(key) != other.get(key)]
        elif value != other:
            changed.append(name)
    return changed


def _refuse_strangers(folder: Path) -> None:
    if any((folder / _TRIALS).glob("*")):
        raise CheckpointError(
            f"there are trials and no {_MANIFEST}", where=str(folder), remedy="Give another --out"
        )
