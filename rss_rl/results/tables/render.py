"""A table's results as Markdown for people and as CSV for programs."""

from __future__ import annotations

__all__ = ["as_csv", "as_markdown"]

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rss_rl.results.markdown import grid
from rss_rl.results.spread import Spread
from rss_rl.results.tables.plan import Plan
from rss_rl.results.tables.results import RowResult
from rss_rl.results.tables.spec import heading, percent_scale
from rss_rl.results.tables.timings import Timing

_NONE = "-"
_Cell = Callable[[RowResult], str]


def as_markdown(plan: Plan, results: Sequence[RowResult], machine: Mapping[str, Any]) -> str:
    """The title, an overview where there are several datasets, and a part for each dataset.

    Args:
        machine: that times were measured on.
    """
    parts = [f"# {plan.table.title}", plan.table.note]
    if len(plan.datasets) > 1:
        parts.append(_overview(plan, results))
    for dataset in plan.datasets:
        own = [result for result in results if result.dataset is dataset]
        parts += [f"## {dataset.label or dataset.name}", dataset.note, _part(plan, own)]
    parts.append(_footnote(results, machine))
    return "\n\n".join(part for part in parts if part) + "\n"


def _overview(plan: Plan, results: Sequence[RowResult]) -> str:
    """One metric of every dataset: ours, and what was published behind a slash."""
    found = {(result.row.name, result.dataset.name): result for result in results}
    header = ["model"]
    for dataset in plan.datasets:
        metric = _main_metric(plan, [r for r in results if r.dataset is dataset])
        header.append(f"{dataset.label or dataset.name}, {heading(metric)}")
    body = []
    for row in plan.rows:
        cells = [row.label]
        for dataset in plan.datasets:
            result = found.get((row.name, dataset.name))
            metric = _main_metric(plan, [r for r in results if r.dataset is dataset])
            ours = _NONE if result is None else _ours(metric)(result)
            published = _NONE if result is None else _published(metric)(result)
            cells.append(ours if published == _NONE else f"{ours} / *{published}*")
        body.append(cells)
    return f"Ours / *published*.\n\n{grid(header, body)}"


def _main_metric(plan: Plan, results: Sequence[RowResult]) -> str:
    metrics = plan.table.metrics
    return next((name for name in metrics if _shown(name, results)), metrics[0])


def _shown(metric: str, results: Sequence[RowResult]) -> bool:
    return any(r.metrics.get(metric) or r.row.figure(r.dataset.name, metric) for r in results)


def _part(plan: Plan, results: Sequence[RowResult]) -> str:
    columns: list[tuple[str, _Cell]] = [("model", _label), ("runs", _runs)]
    for metric in plan.table.metrics:
        if _shown(metric, results):
            columns.append((heading(metric), _ours(metric)))
            columns.append(("published", _published(metric)))
    columns.append(("kept", lambda r: _percent(r.kept)))
    columns.append(("parameters", lambda r: _millions(r.parameters)))
    columns.append(("published parameters", _published_parameters))
    first = _first_timed(results)
    for name, title in (("epoch", "epoch s"), ("inference", "inference s")):
        columns.append((title, _time(name)))
        if first is not None:
            columns.append((f"{name} × {first.row.label}", _ratio(name, first)))
        columns.append((f"published {title}", _published_time(f"{name}_s")))
    filled = [
        (title, cell)
        for title, cell in columns
        if title in ("model", "runs") or any(cell(r) != _NONE for r in results)
    ]
    body = [[cell(result) for _, cell in filled] for result in results]
    return grid([title for title, _ in filled], body)


def _label(result: RowResult) -> str:
    return result.row.label if result.row.runs else f"*{result.row.label}*"


def _runs(result: RowResult) -> str:
    """How many runs the row stands for; how many are missing."""
    if result.planned == 0:
        return _NONE
    if result.runs < result.planned:
        return f"{result.runs} of {result.planned}"
    return str(result.runs) if not result.folds else f"{result.folds} folds × {result.seeds}"


def _ours(metric: str) -> _Cell:
    return lambda result: _spread(metric, result.metrics.get(metric))


def _spread(metric: str, found: Spread | None) -> str:
    if found is None:
        return _NONE
    scale = percent_scale(metric)
    places = 1 if scale > 1 else 4
    mean = f"{scale * found.mean:.{places}f}"
    return mean if found.deviation is None else f"{mean} ({scale * found.deviation:.{places}f})"


def _published(metric: str) -> _Cell:
    def cell(result: RowResult) -> str:
        figure = result.row.figure(result.dataset.name, metric)
        if figure is None:
            return _NONE
        shown = [_figure(metric, value) for value in figure if value is not None]
        return shown[0] if len(shown) == 1 else f"{shown[0]} ({shown[1]})"

    return cell


def _figure(metric: str, value: float) -> str:
    """A published figure with the places it was published with."""
    if percent_scale(metric) == 1:
        return f"{value:.4f}"
    return f"{value:.1f}" if round(value, 1) == value else f"{value:.2f}"


def _extra(result: RowResult, name: str) -> float | None:
    figure = result.row.figure(result.dataset.name, name)
    return None if figure is None else figure[0]


def _percent(found: Spread | None) -> str:
    if found is None:
        return _NONE
    mean = f"{found.mean:.1%}"
    return mean if found.deviation is None else f"{mean} ({100 * found.deviation:.1f})"


def _published_parameters(result: RowResult) -> str:
    """With as many places as were published."""
    count = _extra(result, "parameters")
    return _NONE if count is None else f"{count / 1e6:g} M"


def _millions(count: int | None) -> str:
    if count is None:
        return _NONE
    return f"{count / 1e6:.2f} M" if count >= 1e5 else f"{count:,.0f}"


def _first_timed(results: Sequence[RowResult]) -> RowResult | None:
    return next((result for result in results if result.timing is not None), None)


def _seconds(timing: Timing, name: str) -> float:
    return timing.epoch if name == "epoch" else timing.inference


def _time(name: str) -> _Cell:
    return lambda r: _NONE if r.timing is None else f"{_seconds(r.timing, name):.3g}"


def _ratio(name: str, first: RowResult) -> _Cell:
    return lambda r: _NONE if (ratio := _times(r, first, name)) is None else f"{ratio:.2f}"


def _times(result: RowResult, first: RowResult | None, name: str) -> float | None:
    if result.timing is None or first is None or first.timing is None:
        return None
    return _seconds(result.timing, name) / _seconds(first.timing, name)


def _published_time(name: str) -> _Cell:
    return lambda r: _NONE if (value := _extra(r, name)) is None else f"{value:g}"


def _footnote(results: Sequence[RowResult], machine: Mapping[str, Any]) -> str:
    said = [
        "Mean (sample standard deviation) over the runs, of cross validation over the folds. "
        "Scores are of test, from the checkpoint of the last phase that was best on dev.",
        "Kept: test's tokens that are head or dependent. Parameters: without embeddings, with the "
        "policy where it selects.",
    ]
    if any(result.timing for result in results) and machine:
        shown = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in machine.items())
        said.append(
            "Times: of an epoch of the last phase, and of a pass over test; medians of interleaved "
            f"turns in one process after training; {shown}."
        )
    return " ".join(said)


def as_csv(plan: Plan, results: Sequence[RowResult]) -> str:
    """A line for each row of each dataset; empty cells where something is not known."""
    records = [
        _record(plan, result, [r for r in results if r.dataset is result.dataset])
        for result in results
    ]
    out = io.StringIO()
    writer = csv.DictWriter(out, list(records[0]) if records else ["dataset"], lineterminator="\n")
    writer.writeheader()
    writer.writerows(records)
    return out.getvalue()


def _record(plan: Plan, result: RowResult, same: Sequence[RowResult]) -> dict[str, Any]:
    record: dict[str, Any] = {
        "dataset": result.dataset.name,
        "row": result.row.name,
        "label": result.row.label,
        "mode": result.row.mode if result.row.runs else "",
        "runs": result.runs,
        "planned": result.planned,
        "seeds": result.seeds,
        "folds": result.folds,
    }
    for metric in plan.table.metrics:
        scale = percent_scale(metric)
        name = f"{metric}_percent" if scale > 1 else metric
        ours = result.metrics.get(metric)
        record |= _columns(name, [None if v is None else scale * v for v in ours or (None, None)])
        figure = result.row.figure(result.dataset.name, metric)
        record |= _columns(f"{name}_published", figure or (None, None))
    record |= _columns("kept", result.kept or (None, None))
    record["parameters"] = result.parameters
    record["parameters_published"] = _extra(result, "parameters")
    first = _first_timed(same)
    for name in ("epoch", "inference"):
        record[f"{name}_s"] = result.timing and _seconds(result.timing, name)
        record[f"{name}_ratio"] = _times(result, first, name)
        record[f"{name}_s_published"] = _extra(result, f"{name}_s")
    return record


def _columns(name: str, pair: Sequence[float | None]) -> dict[str, float | None]:
    return {name: pair[0], f"{name}_sd": pair[1]}
