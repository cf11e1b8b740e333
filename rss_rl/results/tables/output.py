"""The files of a table beside its runs: table.md, table.csv, runs.csv, table.png, timing.json."""

from __future__ import annotations

__all__ = ["TIMING_FILE", "Written", "check_folder", "time_rows", "write_table"]

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rss_rl.durable import replace_file
from rss_rl.errors import CheckpointError, RssError
from rss_rl.results.tables.plan import Plan, PlannedRun, state_of
from rss_rl.results.tables.render import as_csv, as_markdown
from rss_rl.results.tables.results import collect_results, runs_as_csv
from rss_rl.results.tables.spec import Dataset
from rss_rl.results.tables.timings import Timing, identity, read_timings, write_timings

TIMING_FILE = "timing.json"


@dataclass(frozen=True)
class Written:
    """The table in Markdown, and where its files lie."""

    markdown: str
    files: tuple[Path, ...]


@contextmanager
def _written(plan: Plan) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise CheckpointError(
            f"the table cannot be written: {error.strerror or error}",
            where=str(plan.folder),
            remedy="Give --out on a disk that can be written and has free space",
        ) from error


def check_folder(plan: Plan) -> None:
    """Make the table's folder, so that hours are not spent on what cannot be written.

    Raises:
        CheckpointError: the disk refuses.
    """
    with _written(plan):
        plan.folder.mkdir(parents=True, exist_ok=True)
        if not os.access(plan.folder, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))


def write_table(plan: Plan, show: Callable[[str], None] = lambda _: None) -> Written:
    """Read what is finished, and write the table of it.

    Args:
        show: is given the Markdown first: what cannot be written can still be read.

    Raises:
        CheckpointError: a report or the times are damaged, or nothing can be written.
    """
    from rss_rl.results.tables.chart import draw  # takes a second: not before there is a table

    machine, timings = read_timings(plan.folder / TIMING_FILE)
    fresh = {name: _still_true(plan, name, rows) for name, rows in timings.items()}
    results = collect_results(plan, fresh)
    markdown = as_markdown(plan, results, machine)
    names = ("table.md", "table.csv", "runs.csv", "table.png")
    files = [plan.folder / name for name in names]
    show(markdown)
    with _written(plan):
        plan.folder.mkdir(parents=True, exist_ok=True)
        replace_file(files[0], markdown)
        replace_file(files[1], as_csv(plan, results))
        replace_file(files[2], runs_as_csv(plan))
        files[3].write_bytes(draw(plan, results))
    return Written(markdown, tuple(files))


def _still_true(plan: Plan, dataset: str, rows: dict[str, Timing]) -> dict[str, Timing]:
    """Times of the rows whose configuration is still the one that was measured."""
    current = {
        run.row.name: identity(run) for run in plan.runs if run.place.dataset.name == dataset
    }
    return {name: t for name, t in rows.items() if current.get(name) == t.run}


def time_rows(
    plan: Plan,
    *,
    anew: bool,
    stop: Callable[[], bool] = lambda: False,
    tell: Callable[[str], None] = lambda _: None,
) -> None:
    """Measure every dataset that has a finished row without times; all rows of it together.

    Args:
        anew: measure all datasets again.
        stop: asked between turns; what is measured by then is kept.
        tell: called with a line about each dataset, also where it cannot be measured.

    Raises:
        CheckpointError: the file of times is damaged or cannot be written.
    """
    from rss_rl.results.tables.timing import machine, measure

    path = plan.folder / TIMING_FILE
    described, timings = read_timings(path)
    for dataset in plan.datasets:
        runs = _first_runs(plan, dataset)
        known = _still_true(plan, dataset.name, timings.get(dataset.name, {}))
        if not runs or stop() or (not anew and all(run.row.name in known for run in runs)):
            continue
        tell(f"measuring times on {dataset.name}: {', '.join(run.row.name for run in runs)}")
        here = machine()
        try:
            measured = measure(runs, stop=stop)
        except RssError as error:
            # Data that are no more: the scores are worth a table all the same.
            tell(f"no times on {dataset.name}: {error}")
            continue
        if measured is not None:
            # Rows that were left out this time were measured beside others: they are dropped.
            described, timings = here, timings | {dataset.name: measured}
            with _written(plan):
                write_timings(path, described, timings)


def _first_runs(plan: Plan, dataset: Dataset) -> list[PlannedRun]:
    """A finished run of each row, all of one place."""
    finished = [
        run for run in plan.runs if run.place.dataset is dataset and state_of(run) == "finished"
    ]
    if not finished:
        return []
    place = finished[0].place
    first: dict[str, PlannedRun] = {}
    for run in finished:
        if run.place.name == place.name:
            first.setdefault(run.row.name, run)
    return [first[row.name] for row in plan.rows if row.name in first]
