"""What the finished runs of a table came to.

Of a dataset: mean and standard deviation over the seeds. Of a cross validation: each fold's mean
over its seeds first, then mean and standard deviation over the folds, as the papers do.
"""

from __future__ import annotations

__all__ = ["RowResult", "collect_results", "over_folds", "runs_as_csv"]

import csv
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from rss_rl.errors import CheckpointError
from rss_rl.results.spread import Spread, spread
from rss_rl.results.tables.plan import Plan, PlannedRun, state_of
from rss_rl.results.tables.spec import Dataset, Row
from rss_rl.results.tables.timings import Timing
from rss_rl.runs.run_directory import RunDirectory

_SPLIT = "test"
_KEPT = "kept"


@dataclass(frozen=True)
class RowResult:
    """A row on a dataset.

    metrics     of test, those of the table that the reports have; none where no run is finished
    runs        finished, of how many planned; folds: finished ones
    seeds       of a fold, or of the dataset; the fewest
    parameters  without embeddings
    kept        share of the tokens
    timing      None where it was not measured
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
    """Every row of every dataset of the plan, in their order.

    Args:
        timings: by dataset and row.

    Raises:
        CheckpointError: a report is damaged, or lacks the mode that counts.
    """
    return [
        _result(plan, row, dataset, timings.get(dataset.name, {}).get(row.name))
        for dataset in plan.datasets
        for row in plan.rows
        if plan.table.shows(row, dataset)
    ]


def _result(plan: Plan, row: Row, dataset: Dataset, timing: Timing | None) -> RowResult:
    planned = plan.runs_of(row, dataset)
    finished = [(run, _report(run)) for run in planned if state_of(run) == "finished"]
    if not finished:
        return RowResult(row, dataset, {}, 0, len(planned), 0, 0)
    scores = [(run.place.name, _scores(run, report)) for run, report in finished]
    spreads = {
        name: over_folds([(place, values[name]) for place, values in scores])
        for name in (*plan.table.metrics, _KEPT)
        if all(_is_number(values.get(name)) for _, values in scores)
    }
    places = [place for place, _ in scores]
    return RowResult(
        row,
        dataset,
        {name: value for name, value in spreads.items() if name != _KEPT},
        runs=len(finished),
        planned=len(planned),
        seeds=min(places.count(place) for place in places),
        folds=len(set(places)) if dataset.folds else 0,
        parameters=finished[0][1]["parameters"],
        kept=spreads.get(_KEPT),
        timing=timing,
    )


def over_folds(values: Sequence[tuple[str, float]]) -> Spread:
    """Over seeds where all values are of one place, else over the places' means.

    >>> over_folds([("a", 1.0), ("a", 3.0), ("b", 4.0)])
    Spread(mean=3.0, deviation=1.4142135623730951)
    """
    places: dict[str, list[float]] = {}
    for place, value in values:
        places.setdefault(place, []).append(value)
    if len(places) == 1:
        return spread([value for _, value in values])
    return spread([fmean(own) for own in places.values()])


def runs_as_csv(plan: Plan) -> str:
    """A line for each finished run, with all that its report says of test: for tests of one's own.

    Raises:
        CheckpointError: as `collect_results`.
    """
    records: list[dict[str, Any]] = []
    for run in plan.runs:
        if state_of(run) == "finished":
            report = _report(run)
            scores = {name: v for name, v in _scores(run, report).items() if _is_number(v)}
            records.append(
                {"place": run.place.name, "row": run.row.name, "seed": run.seed}
                | {"mode": run.row.mode, "parameters": report["parameters"]}
                | scores
            )
    header = dict.fromkeys(name for record in records for name in record)
    out = io.StringIO()
    writer = csv.DictWriter(out, list(header) or ["place"], lineterminator="\n")
    writer.writeheader()
    writer.writerows(records)
    return out.getvalue()


def _report(run: PlannedRun) -> dict[str, Any]:
    return RunDirectory.open(run.path).read_report()


def _scores(run: PlannedRun, report: Mapping[str, Any]) -> Mapping[str, Any]:
    scores = report.get("splits", {}).get(_SPLIT, {}).get(run.row.mode)
    if not isinstance(scores, dict):
        raise CheckpointError(
            f"the report has no scores of {_SPLIT} with mode '{run.row.mode}'",
            where=str(run.path),
            remedy="Remove the run's directory to make it again",
        )
    return scores


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)
