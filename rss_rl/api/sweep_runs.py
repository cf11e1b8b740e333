"""The runs of one call of `sweep`: what is missing is prepared and trained."""

from __future__ import annotations

import os
import time
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, cast

from rich.console import Console

from rss_rl.api.adapting import adapt
from rss_rl.api.interruption import Interruption
from rss_rl.api.options import TableOptions
from rss_rl.api.prepare import prepare
from rss_rl.api.terminal import say
from rss_rl.data.manifest import MANIFEST_FILE
from rss_rl.data.store import open_prepared
from rss_rl.errors import CheckpointError, ConfigError, DataError, RssError
from rss_rl.results.sweeps.plan import (
    DATA_FOLDER,
    Base,
    Fold,
    PlannedRun,
    find_base,
    plan_runs,
    state_of,
)
from rss_rl.results.sweeps.spec import Spec
from rss_rl.results.sweeps.trial import train_run

_OF_FIT = ("keep", "config", "pretrained")
"""Options of `fit` that a base may have, besides those of a table."""
_STOPPING = "stopping: each run saves a checkpoint first; Ctrl-C again quits at once"


def train_missing(one: Sweep, jobs: int, again: bool, address: str | None) -> int | None:
    """Train what is missing; the signal that stopped it, or None."""
    missing = one.missing(again)
    if not missing:
        return None
    from rss_rl.cluster.connection import ADDRESS_VARIABLE, connected

    if jobs == 1 and not (address or os.environ.get(ADDRESS_VARIABLE)):
        with Interruption(_STOPPING, watches=True) as interruption:
            for run in missing:
                if interruption.asked():
                    break
                one.show(run, "begins", "")
                one.show(run, *train_run(run, interruption.asked, again))
        return interruption.signal
    from rss_rl.cluster.sweeping import run_sweep

    tell = partial(say, one.out)
    with Interruption(_STOPPING) as interruption, connected(tell, address, cores=jobs):
        how: dict[str, Any] = {"jobs": jobs, "again": again}
        run_sweep(one.folder, iter(missing), stop=interruption.asked, show=one.show, **how)
    return interruption.signal


def _base(spec: Spec, folder: Path, out: Console) -> Base:
    if isinstance(spec.base, str):
        return find_base(spec.base)
    needed = ("data", "text", "label")
    known = (*_OF_FIT, *TableOptions.__annotations__)
    how = dict(spec.base)
    wrong = [name for name in how if name not in known and name not in needed]
    wrong += [name for name in needed if name not in how]
    if wrong:
        remedy = f"A table has {', '.join(needed)}, and may have {', '.join(known)}"
        raise ConfigError(f"'{wrong[0]}' is unknown or missing", where="base", remedy=remedy)
    data, text, label = (how.pop(name) for name in needed)
    options = {name: how.pop(name) for name in _OF_FIT if name in how}
    table = cast(TableOptions, how)
    # With the settings of all runs, so that what is printed as chosen is what they train with.
    options["begun"] = {}  # without a limit of time, nothing is measured
    place = folder / DATA_FOLDER
    adapted = adapt(data, text, label, spec.settings, table, place, out, **options)
    if adapted.all_words is not None and not adapted.all_words.finished:
        raise ConfigError(
            "the fine-tuning on all words was stopped",
            where=str(adapted.all_words.path),
            remedy="Repeat the command to continue",
        )
    return Base(adapted.file.stem, adapted.file, adapted.settings)


class Sweep:
    """One call of `sweep`.

    Args:
        folder: of runs and results. out: for progress and the table.
    """

    def __init__(self, spec: Spec, folder: Path, out: Console) -> None:
        self.spec, self.folder, self.out = spec, folder, out
        self.failed: dict[str, str] = {}
        self.runs = plan_runs(spec, _base(spec, folder, out), folder)
        self._all, self._ended = len(self.runs), 0
        self._began = time.monotonic()

    def missing(self, again: bool) -> list[PlannedRun]:
        """Runs that are not finished, of those whose data can be had."""
        states = {run.name: state_of(run) for run in self.runs}
        changed = [run for run in self.runs if states[run.name] == "changed"]
        if changed and not again:
            raise CheckpointError(
                f"{len(changed)} runs were made with other settings or data than now",
                where=str(changed[0].path),
                remedy="Replace such runs with --again, or give another --out",
            )
        missing = [run for run in self.runs if states[run.name] != "finished"]
        reasons = {}
        for name, fold in {run.fold.name: run.fold for run in missing}.items():
            try:
                self._prepare(fold)
            except RssError as error:
                reasons[name] = str(error)
        self.failed |= {
            run.name: reasons[run.fold.name] for run in missing if run.fold.name in reasons
        }
        missing = [run for run in missing if run.name not in self.failed]
        self._all = len(missing)
        return missing

    def _prepare(self, fold: Fold) -> None:
        """Prepare the data of a fold, if they are missing."""
        if fold.spec.data is not None or Path(fold.data, MANIFEST_FILE).is_file():
            open_prepared(fold.data)
            return
        self._tell(f"preparing {fold.name}")
        arguments: dict[str, Any] = {"data": fold.spec.source, "options": fold.options}
        if fold.spec.folder is not None:
            arguments["folder"] = Path(self.spec.root, fold.spec.folder)
        if fold.spec.table is not None:
            files = {"data", "dev", "test"} & {*fold.spec.table}
            paths = {name: Path(self.spec.root, fold.spec.table[name]) for name in files}
            arguments = {**fold.spec.table, **paths}
        first = arguments.get("folder", arguments["data"])
        if isinstance(first, Path) and not first.exists():
            remedy = "Give root=DIR, with a folder for each dataset and the files of vectors"
            raise DataError("is missing", where=str(first), remedy=remedy)
        prepare(out=fold.data, vectors=list(fold.vectors), dim=fold.spec.dim, **arguments)

    def show(self, run: PlannedRun, outcome: str, reason: str) -> None:
        """A line where a run begins or ends, with how many are over, and the time that is left."""
        if outcome == "begins":
            self._tell(f"{run.name}: begins")
            return
        self._ended += 1
        if outcome == "failed":
            self.failed[run.name] = reason
        left = (time.monotonic() - self._began) / self._ended * (self._all - self._ended)
        of = f"{self._ended} of {self._all} runs over, about {timedelta(seconds=int(left))} left"
        self._tell(f"{run.name}: {outcome}{f': {reason}' if reason else ''}  [{of}]")

    def _tell(self, line: str) -> None:
        say(self.out, line)
        self.out.file.flush()
