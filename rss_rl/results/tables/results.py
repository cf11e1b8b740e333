"""Scores of a table's finished runs.

For a dataset: mean and standard deviation over seeds. For cross-validation: first each fold's mean
over its seeds, then mean and standard deviation over the folds, as in the papers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from rss_rl.errors import CheckpointError
from rss_rl.results.summary import Spread, is_number, spread
from rss_rl.results.tables.plan import Plan, PlannedRun, state_of
from rss_rl.results.tables.spec import Dataset, Row
from rss_rl.results.tables.timing import Timing
from rss_rl.runs.run_directory import RunDirectory

_SPLIT = "test"
_KEPT = "kept"


@dataclass(frozen=True)
class RowResult:
    """A row on a dataset.

    metrics     on test, those of the table that all reports have; empty if no run is finished
    runs        finished runs, of `planned`. folds: with finished runs
    seeds       per fold (the fewest), or of the dataset
    parameters  without embeddings
    kept        share of the tokens
    timing      None if not measured
    """

    row: Row
    dataset: Dataset
    metrics: Mapping[str, Spread]
    runs: int
    planned: int
    seeds: int
    folds: int
    parameters: int | None = None
    kept: Spread | None = None
    timing: Timing | None = None


def collect_results(plan: Plan, timings: Mapping[str, Mapping[str, Timing]]) -> list[RowResult]:
    """Results of every row on every dataset of the plan, in order.

    Args:
        timings: by dataset and row.

    Raises:
        CheckpointError: a report is damaged, or lacks the row's mode.
    """
    return [
        _result(plan, row, dataset, timings.get(dataset.name, {}).get(row.name))
        for dataset in plan.datasets
        for row in plan.rows
        if plan.table.shows(row, dataset)
    ]


def _result(plan: Plan, row: Row, dataset: Dataset, timing: Timing | None) -> RowResult:
    planned = plan.runs_of(row, dataset)
    finished = list(finished_runs(planned))
    if not finished:
        return RowResult(row, dataset, {}, 0, len(planned), 0, 0)
    spreads = {
        name: over_folds([(run.fold.name, scores[name]) for run, _, scores in finished])
        for name in (*plan.table.metrics, _KEPT)
        if all(is_number(scores.get(name)) for _, _, scores in finished)
    }
    folds = [run.fold.name for run, _, _ in finished]
    return RowResult(
        row,
        dataset,
        {name: value for name, value in spreads.items() if name != _KEPT},
        runs=len(finished),
        planned=len(planned),
        seeds=min(folds.count(fold) for fold in folds),
        folds=len(set(folds)) if dataset.folds else 0,
        parameters=finished[0][1]["parameters"],
        kept=spreads.get(_KEPT),
        timing=timing,
    )


def over_folds(values: Sequence[tuple[str, float]]) -> Spread:
    """Spread over seeds if all values are of one fold, else over the folds' means.

    >>> over_folds([("a", 1.0), ("a", 3.0), ("b", 4.0)])
    Spread(mean=3.0, deviation=1.4142135623730951)
    """
    folds: dict[str, list[float]] = {}
    for fold, value in values:
        folds.setdefault(fold, []).append(value)
    if len(folds) == 1:
        return spread([value for _, value in values])
    return spread([fmean(own) for own in folds.values()])


def finished_runs(
    runs: Iterable[PlannedRun],
) -> Iterator[tuple[PlannedRun, dict[str, Any], Mapping[str, Any]]]:
    """Finished runs, each with its report and its test scores in the row's mode.

    Raises:
        CheckpointError: a report is damaged, or lacks that mode.
    """
    for run in runs:
        if state_of(run) != "finished":
            continue
        report = RunDirectory.open(run.path).read_report()
        scores = report.get("splits", {}).get(_SPLIT, {}).get(run.row.mode)
        if not isinstance(scores, dict):
            raise CheckpointError(
                f"the report has no scores of {_SPLIT} with mode '{run.row.mode}'",
                where=str(run.path),
                remedy="Remove the run's directory to train it again",
            )
        yield run, report, scores
