"""The runs of one call of `sweep`: what is missing is prepared and trained."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from datetime import timedelta
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any, cast

from rich.console import Console

from rss_rl.api.adapting import Wish, adapt
from rss_rl.api.interruption import Interruption
from rss_rl.api.options import TableOptions
from rss_rl.api.prepare import prepare
from rss_rl.api.terminal import say
from rss_rl.config import parse_value
from rss_rl.data.manifest import MANIFEST_FILE
from rss_rl.data.store import open_prepared
from rss_rl.errors import CheckpointError, ConfigError, DataError, RssError
from rss_rl.packaged import find_config
from rss_rl.results.sweeps.plan import (
    DATA_FOLDER,
    ENDED,
    Base,
    Fold,
    PlannedRun,
    find_base,
    plan_runs,
    state_of,
)
from rss_rl.results.sweeps.search import core_seconds, rungs
from rss_rl.results.sweeps.spec import Spec

_HOPELESS = 5
"""Failed runs of a search, without any that ended, after which no more are begun."""
_STOPPING = "stopping: each run saves a checkpoint first; Ctrl-C again quits at once"


def train_missing(one: Sweep, jobs: int, again: bool, address: str | None) -> int | None:
    """Train what is missing; the signal that stopped it, or None."""
    runs = one.missing(again)
    first = next(runs, None)  # before a cluster is started, as there may be nothing to do
    if first is None:
        return None
    from rss_rl.cluster.connection import connected
    from rss_rl.cluster.sweeping import run_sweep

    tell = partial(say, one.out)
    searches = one.spec.search is not None
    with (
        Interruption(_STOPPING) as interruption,
        connected(tell, address, cores=jobs),
    ):
        run_sweep(
            one.folder,
            chain([first], runs),
            jobs=jobs,
            rungs=rungs(first.config) if searches else None,
            again=again,
            stop=interruption.asked,
            show=one.show,
        )
    return interruption.signal


def _base(spec: Spec, folder: Path, out: Console) -> Base:
    if isinstance(spec.base, str):
        return find_base(spec.base)
    needed = ("data", "text", "label")
    known = (*Wish._fields, *TableOptions.__annotations__)
    how = dict(spec.base)
    wrong = [name for name in how if name not in known and name not in needed]
    wrong += [name for name in needed if name not in how]
    if wrong:
        remedy = f"A table has {', '.join(needed)}, and may have {', '.join(known)}"
        raise ConfigError(f"'{wrong[0]}' is unknown or missing", where="base", remedy=remedy)
    data, text, label = (how.pop(name) for name in needed)
    wish = Wish(**{name: how.pop(name) for name in Wish._fields if name in how})
    table = cast(TableOptions, how)
    found = adapt(data, text, label, (), wish, table, folder / DATA_FOLDER, out)
    if found.words is not None and not found.words.finished:
        raise ConfigError(
            "the fine-tuning on all words was stopped",
            where=str(found.words.path),
            remedy="Repeat the command to continue",
        )
    pairs = (setting.partition("=") for setting in found.settings)
    own = {key: parse_value(value, where=key) for key, _, value in pairs}
    return Base(find_config(found.config).stem, find_config(found.config), own)


class Sweep:
    """One call of `sweep`.

    Args:
        folder: of runs and results. out: for progress and the table.
    """

    def __init__(self, spec: Spec, folder: Path, out: Console) -> None:
        self.spec, self.folder, self.out = spec, folder, out
        self.failed: dict[str, str] = {}
        self._planned = plan_runs(spec, _base(spec, folder, out), folder)
        begun = None
        if spec.search is not None:  # the last trial that was begun, or the first
            begun = max([1, *(1 + int(path.name[6:]) for path in folder.glob("*/trial-[0-9]*"))])
        self.runs = list(islice(self._planned, begun))
        self._all, self._ended = len(self.runs), 0
        self._began = time.monotonic()

    def missing(self, again: bool) -> Iterator[PlannedRun]:
        """Runs that are not finished, of those whose data can be had; of a search all that were
        begun, and then others while something is left of the budget."""
        states = {run.name: state_of(run) for run in self.runs}
        changed = [run for run in self.runs if states[run.name] == "changed"]
        if changed and not again:
            raise CheckpointError(
                f"{len(changed)} runs were made with other settings or data than now",
                where=str(changed[0].path),
                remedy="Replace such runs with --again, or give another --out",
            )
        folds = {run.fold.name: run.fold for run in self.runs if states[run.name] not in ENDED}
        lost = {}
        for name, fold in folds.items():
            try:
                self._prepare(fold)
            except RssError as error:
                lost[name] = str(error)
        wanted = [run for run in self.runs if states[run.name] != "finished"]
        if self.spec.search is not None:
            wanted = self.runs if not {*states.values()} <= {*ENDED} or self._left() > 0 else []
        self.failed |= {run.name: lost[run.fold.name] for run in wanted if run.fold.name in lost}
        wanted = [run for run in wanted if run.name not in self.failed]
        self._all = len(wanted)
        yield from wanted
        while self.spec.search is not None and not lost and self._left() > 0:
            hopeless = len(self.failed) >= _HOPELESS and not self._ended
            run = None if hopeless else next(self._planned, None)
            if run is None:
                return
            self.runs.append(run)
            self._all += 1
            yield run

    def _prepare(self, fold: Fold) -> None:
        """Prepare the data of a fold, if they are missing."""
        if fold.spec.source is None or Path(fold.data, MANIFEST_FILE).is_file():
            open_prepared(fold.data)
            return
        self._tell(f"preparing {fold.name}")
        folder = None if fold.spec.folder is None else Path(self.spec.root, fold.spec.folder)
        if folder is not None and not folder.is_dir():
            remedy = "Give root=DIR, with a folder for each dataset and the files of vectors"
            raise DataError("the folder is missing", where=str(folder), remedy=remedy)
        how: dict[str, Any] = {"folder": folder, "options": fold.options, "dim": fold.spec.dim}
        prepare(fold.spec.source, out=fold.data, vectors=list(fold.vectors), **how)

    def _left(self) -> float:
        """Seconds of a core that a search may still take."""
        assert self.spec.search is not None
        return 60 * self.spec.search.minutes - sum(core_seconds(run.path) for run in self.runs)

    def show(self, run: PlannedRun, news: Mapping[str, Any]) -> None:
        """A line where a run begins or ends, with how many are over, and the time that is left."""
        outcome = news.get("outcome")
        if not news:
            self._tell(f"{run.name}: begins")
        if outcome is None:
            return
        self._ended += outcome in ENDED
        if outcome == "failed":
            self.failed[run.name] = news["reason"]
        reason = f": {news['reason']}" if "reason" in news else ""
        over = self._ended + len(self.failed)
        left = (time.monotonic() - self._began) / max(over, 1) * (self._all - over)
        of = f"{over} of {self._all} runs over, about {timedelta(seconds=int(left))} left"
        if self.spec.search is not None:
            of = f"{over} trials over, {max(0.0, self._left()) / 60:.1f} minutes of a core left"
        self._tell(f"{run.name}: {outcome}{reason}  [{of}]")

    def _tell(self, line: str) -> None:
        say(self.out, line)
        self.out.file.flush()
