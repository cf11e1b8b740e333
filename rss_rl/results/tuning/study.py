"""A search on disk: its folder, manifest, trials, rungs and end.

OUT/tune.json    space, configuration and seeds of the search
OUT/trials/NNN   a trial, see `trial`
OUT/tune.md, trials.csv, tune.png, base.yaml, best.yaml   the results
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
"""Reduction factor of successive halving: the best third of the trials at a rung continue."""
_RUNGS = 2
_MANIFEST, _TRIALS, _LOCK = "tune.json", "trials", "tune.lock"
_GUESS = 36
"""Assumed number of evaluations if phases end by patience, to place the rungs."""
_FAILURES = 5
"""Failed trials, without any other, after which no more are begun."""


@dataclass(frozen=True)
class Study:
    """A search for settings in a folder.

    folder  absolute. seeds: per trial
    """

    folder: Path
    space: Space
    base: Base
    seeds: int

    @cached_property
    def config(self) -> RunConfig:
        """Configuration of trial 0, the unchanged base."""
        return self.base.configure({})

    @cached_property
    def metric(self) -> BestMetric:
        """The dev metric that trials are compared by."""
        return find_best_metric(self.config, open_prepared(self.config.data))

    @cached_property
    def updates(self) -> int:
        """Counted updates of a trial, see `trial`; a guess if patience ends a phase."""
        selects = self.config.selects
        steps = [p.steps or 0 for p in self.config.phases if (p.selection == "sampled") == selects]
        return sum(steps) if all(steps) else _GUESS * self.config.evaluation.every

    @cached_property
    def rungs(self) -> list[int]:
        """Progress at which trials are compared and the worse ones stopped.

        Never before the second evaluation, or while a scheduled share is still falling.
        """
        first = max(2 * self.config.evaluation.every, -(-self.updates // REDUCTION**_RUNGS))
        if falling := self.config.reward.share_schedule * (self.config.policy_updates or 0):
            first = max(first, math.ceil(falling) + self.config.evaluation.every)
        rungs = (first * REDUCTION**number for number in range(_RUNGS))
        return [rung for rung in rungs if rung < self.updates]

    def trials(self) -> Iterator[Trial]:
        """Trials 0, 1, ... until the space is exhausted."""
        for number, settings in enumerate(draw_settings(self.space, self.base, self.config.seed)):
            yield self.trial(number, settings)

    def trial(self, number: int, settings: Settings) -> Trial:
        """The trial with the given number and settings."""
        config = self.base.configure(settings)
        folder = self.folder / _TRIALS / f"{number:03}"
        return Trial(number, folder, settings, config, self.seeds)

    def records(self) -> list[TrialRecord]:
        """Records of all trials begun, sorted by number.

        Raises:
            CheckpointError: a record is damaged.
        """
        found = (read_record(path) for path in sorted((self.folder / _TRIALS).glob("[0-9]*")))
        return sorted((r for r in found if r is not None), key=lambda record: record.number)

    def unfinished(self) -> list[Trial]:
        """Trials that were interrupted."""
        return [self.trial(r.number, r.settings) for r in self.records() if r.state == "running"]

    def fresh(self) -> Iterator[Trial]:
        """Trials that have not begun."""
        begun = {record.number for record in self.records()}
        return (trial for trial in self.trials() if trial.number not in begun)

    def over(self, budget_s: float) -> bool:
        """Whether no trial is left to resume or to begin.

        Args:
            budget_s: core seconds for all trials.
        """
        records = self.records()
        if any(record.state == "running" for record in records):
            return False
        return sum(record.core_s for record in records) >= budget_s or self.hopeless(records)

    @staticmethod
    def hopeless(records: list[TrialRecord]) -> bool:
        """Whether all trials failed, and enough of them that further ones would fail, too."""
        failed = sum(record.state == "failed" for record in records)
        return failed >= _FAILURES and failed == len(records)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the folder against other searches.

        Raises:
            CheckpointError: another process holds the lock.
        """
        busy = CheckpointError(
            "another process is searching there",
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
    """Begin a search in `folder`, or resume the existing one.

    Args:
        begin: write the manifest; False writes nothing.

    Raises:
        CheckpointError: the folder holds a different search, or cannot be written.
        ConfigError: there is nothing to search.
    """
    folder = folder.absolute()
    if not is_uri(data := str(base.tree["data"])):
        base = Base(dict(base.tree, data=str(Path(data).resolve())), base.where)
    if (run := base.tree.get("policy", {}).get("from_run")) is not None:
        policy = dict(base.tree["policy"], from_run=str(Path(run).resolve()))
        base = Base(dict(base.tree, policy=policy), base.where)
    study = Study(folder, space, base, seeds)
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
        if any((folder / _TRIALS).glob("*")):
            what = f"there are trials but no {_MANIFEST}"
            raise CheckpointError(what, where=str(folder), remedy="Give another --out")
        with disk_errors(folder, "the search cannot be written", FREE_SPACE):
            replace_file(manifest, json.dumps(present, indent=2) + "\n")
    elif changed := _changed(read_json(manifest, remedy=_SAME_OR_ELSEWHERE), present):
        raise CheckpointError(
            f"a search was begun there with other values of {', '.join(changed)}",
            where=str(folder),
            remedy=_SAME_OR_ELSEWHERE,
        )
    return study


_SAME_OR_ELSEWHERE = "Give the same space, configuration and --seeds, or another --out"


def _manifest(study: Study) -> dict[str, Any]:
    """The contents of the manifest, as JSON data."""
    config = study.config.model_dump(mode="json")
    tree = {"space": study.space.as_tree(), "configuration": config, "seeds": study.seeds}
    manifest: dict[str, Any] = json.loads(json.dumps(tree))
    return manifest


def _changed(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """Names of the parts and sections of the manifest that differ."""
    changed = []
    for name, value in now.items():
        other = before.get(name)
        if isinstance(value, dict) and isinstance(other, dict):
            keys = sorted({*value, *other})
            changed += [f"{name} {key}" for key in keys if value.get(key) != other.get(key)]
        elif value != other:
            changed.append(name)
    return changed
