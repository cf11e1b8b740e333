"""The output files of a table: table.md, table.csv, runs.csv, table.png."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rss_rl.errors import CheckpointError
from rss_rl.results import output
from rss_rl.results.summary import is_number
from rss_rl.results.tables.hparams import write_hparams
from rss_rl.results.tables.plan import Plan
from rss_rl.results.tables.results import RowResult, collect_results, finished_runs
from rss_rl.results.tables.spec import heading, percent_scale
from rss_rl.results.tables.timing import fresh_timings
from rss_rl.runs.run_directory import RunDirectory

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_OURS, _PUBLISHED = output.COLOURS[:2]
_PANEL_WIDTH, _ROW_HEIGHT, _FRAME_HEIGHT = 5.8, 0.36, 1.3
_BESIDE = 0.14
"""Vertical offset of our and the published point from the middle of their row."""


def write_table(plan: Plan, show: Callable[[str], None] = lambda _: None) -> list[Path]:
    """Write the table of the finished runs; returns the files.

    Args:
        show: called with the Markdown first, so that it is shown even if writing fails.

    Raises:
        CheckpointError: a report or the times are damaged, or a write fails.
    """
    machine, timings = fresh_timings(plan)
    results = collect_results(plan, timings)
    markdown = as_markdown(plan, results, machine)
    show(markdown)
    contents: dict[str, str | bytes] = {
        "table.md": markdown,
        "table.csv": as_csv(plan, results),
        "runs.csv": runs_as_csv(plan),
        "table.png": draw(plan, results),
    }
    write_hparams(plan)
    return output.write_files(plan.folder, contents, "table")


def as_markdown(plan: Plan, results: Sequence[RowResult], machine: Mapping[str, Any]) -> str:
    """The title, an overview if there are several datasets, and a section for each dataset.

    Args:
        machine: on which times were measured.
    """
    parts = [f"# {plan.table.title}", plan.table.note]
    if len(plan.datasets) > 1:
        parts.append(_overview(plan, results))
    for dataset in plan.datasets:
        own = [result for result in results if result.dataset is dataset]
        parts += [f"## {dataset.label or dataset.name}", dataset.note, _dataset_table(plan, own)]
    parts.append(_footnote(results, machine))
    return "\n\n".join(part for part in parts if part) + "\n"


def _overview(plan: Plan, results: Sequence[RowResult]) -> str:
    """One metric per dataset: ours / published."""
    found = {(result.row.name, result.dataset.name): result for result in results}
    header, columns = ["model"], [[row.label for row in plan.rows]]
    for dataset in plan.datasets:
        own = [result for result in results if result.dataset is dataset]
        metrics = plan.table.metrics
        metric = next((name for name in metrics if _any_figure(name, own)), metrics[0])
        header.append(f"{dataset.label or dataset.name}, {heading(metric)}")
        cells = []
        for row in plan.rows:
            result = found.get((row.name, dataset.name))
            published = output.NONE if result is None else _published(result, metric)
            ours = output.NONE if result is None else _ours(result, metric)
            cells.append(ours if published == output.NONE else f"{ours} / *{published}*")
        columns.append(cells)
    return (
        f"Ours / *published*.\n\n{output.markdown_table(header, list(zip(*columns, strict=True)))}"
    )


def _any_figure(metric: str, results: Sequence[RowResult]) -> bool:
    return any(r.metrics.get(metric) or r.row.figure(r.dataset.name, metric) for r in results)


def _dataset_table(plan: Plan, results: Sequence[RowResult]) -> str:
    columns = [("model", [_label(r) for r in results]), ("runs", [_runs(r) for r in results])]
    for metric in plan.table.metrics:
        columns.append((heading(metric), [_ours(r, metric) for r in results]))
        columns.append(("published", [_published(r, metric) for r in results]))
    columns += [
        ("kept", [_percent(r) for r in results]),
        ("parameters", [_parameters(r.parameters) for r in results]),
        ("published parameters", [_extra(r, "parameters", 1e-6, " M") for r in results]),
    ]
    first = _first_timed(results)
    for name, title in (("epoch", "epoch s"), ("inference", "inference s")):
        columns.append((title, [_number(_seconds(r, name), ".3g") for r in results]))
        if first is not None:
            ratios = [_number(_time_ratio(r, first, name), ".2f") for r in results]
            columns.append((f"{name} × {first.row.label}", ratios))
        columns.append((f"published {title}", [_extra(r, f"{name}_s") for r in results]))
    filled = [pair for pair in columns[2:] if any(cell != output.NONE for cell in pair[1])]
    header, cells = zip(*columns[:2], *filled, strict=True)
    return output.markdown_table(header, list(zip(*cells, strict=True)))


def _label(result: RowResult) -> str:
    return result.row.label if result.row.runs else f"*{result.row.label}*"


def _runs(result: RowResult) -> str:
    """The number of runs of a row, or how many of the planned are finished."""
    if result.planned == 0:
        return output.NONE
    if result.runs < result.planned:
        return f"{result.runs} of {result.planned}"
    return str(result.runs) if not result.folds else f"{result.folds} folds × {result.seeds}"


def _ours(result: RowResult, metric: str) -> str:
    return output.format_spread(result.metrics.get(metric), percent_scale(metric))


def _published(result: RowResult, metric: str) -> str:
    figure = result.row.figure(result.dataset.name, metric)
    if figure is None:
        return output.NONE
    mean, *deviation = (_figure(metric, value) for value in figure if value is not None)
    return f"{mean} ({deviation[0]})" if deviation else mean


def _figure(metric: str, value: float) -> str:
    """A published figure, with its published decimals."""
    if percent_scale(metric) == 1:
        return f"{value:.4f}"
    return f"{value:.1f}" if round(value, 1) == value else f"{value:.2f}"


def _percent(result: RowResult) -> str:
    if result.kept is None:
        return output.NONE
    mean, deviation = result.kept
    return f"{mean:.1%}" if deviation is None else f"{mean:.1%} ({100 * deviation:.1f})"


def _published_value(result: RowResult, name: str) -> float | None:
    figure = result.row.figure(result.dataset.name, name)
    return None if figure is None else figure[0]


def _extra(result: RowResult, name: str, scale: float = 1, unit: str = "") -> str:
    """A published count or time, with its published decimals."""
    value = _published_value(result, name)
    return output.NONE if value is None else f"{value * scale:g}{unit}"


def _parameters(count: int | None) -> str:
    if count is None:
        return output.NONE
    return f"{count / 1e6:.2f} M" if count >= 1e5 else f"{count:,.0f}"


def _number(value: float | None, form: str) -> str:
    return output.NONE if value is None else format(value, form)


def _first_timed(results: Sequence[RowResult]) -> RowResult | None:
    return next((result for result in results if result.timing is not None), None)


def _seconds(result: RowResult, name: str) -> float | None:
    """A measured time; `name` is `epoch` or `inference`."""
    return None if result.timing is None else getattr(result.timing, name)


def _time_ratio(result: RowResult, first: RowResult | None, name: str) -> float | None:
    ours, base = _seconds(result, name), None if first is None else _seconds(first, name)
    return None if ours is None or base is None else ours / base


def _footnote(results: Sequence[RowResult], machine: Mapping[str, Any]) -> str:
    notes = [
        "Mean (sample standard deviation) over the runs; for cross-validation, over the folds. "
        "Scores are on test, from the checkpoint of the last phase that was best on dev.",
        "Kept: test's tokens that are head or dependent. Parameters: without embeddings, with the "
        "policy where it selects.",
    ]
    if any(result.timing for result in results) and machine:
        facts = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in machine.items())
        notes.append(
            "Times: an epoch of the last phase, and a pass over test; medians of interleaved "
            f"turns in one process after training; {facts}."
        )
    return " ".join(notes)


def as_csv(plan: Plan, results: Sequence[RowResult]) -> str:
    """One line per row and dataset; unknown values are empty cells."""
    first = {
        dataset.name: _first_timed([r for r in results if r.dataset is dataset])
        for dataset in plan.datasets
    }
    records = [_record(plan, result, first[result.dataset.name]) for result in results]
    return output.csv_text(records, ["dataset"])


def _record(plan: Plan, result: RowResult, first: RowResult | None) -> dict[str, Any]:
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
        ours = result.metrics.get(metric) or (None, None)
        record |= _columns(name, [None if v is None else scale * v for v in ours])
        record |= _columns(f"{name}_published", result.row.figure(result.dataset.name, metric))
    record |= _columns("kept", result.kept)
    record["parameters"] = result.parameters
    record["parameters_published"] = _published_value(result, "parameters")
    for name in ("epoch", "inference"):
        record[f"{name}_s"] = _seconds(result, name)
        record[f"{name}_ratio"] = _time_ratio(result, first, name)
        record[f"{name}_s_published"] = _published_value(result, f"{name}_s")
    return record


def _columns(name: str, pair: Sequence[float | None] | None) -> dict[str, float | None]:
    mean, deviation = pair or (None, None)
    return {name: mean, f"{name}_sd": deviation}


def runs_as_csv(plan: Plan) -> str:
    """One line per finished run, with its commit and all test scores of its report.

    Raises:
        CheckpointError: a report is damaged, or lacks the row's mode.
    """
    records = [
        {
            "place": run.fold.name,
            "row": run.row.name,
            "seed": run.seed,
            "mode": run.row.mode,
            "commit": _commit(run.path),
            "parameters": report["parameters"],
        }
        | {name: value for name, value in scores.items() if is_number(value)}
        for run, report, scores in finished_runs(plan.runs)
    ]
    return output.csv_text(records, ["place"])


def _commit(run: Path) -> str:
    """The commit of the code that began a run; empty if unknown."""
    try:
        return str(RunDirectory.open(run).read_provenance().get("commit") or "")
    except CheckpointError:  # a run of an earlier version
        return ""


def draw(plan: Plan, results: Sequence[RowResult]) -> bytes:
    """A PNG with a panel per dataset and metric: our and the published points."""
    shown = [
        (f"{dataset.label or dataset.name}: {heading(metric)}", metric, own)
        for dataset in plan.datasets
        if (own := [r for r in results if r.dataset is dataset and _has(r, plan.table.metrics)])
        for metric in plan.table.metrics
        if any(_has(r, [metric]) for r in own)
    ]
    rows = max((len(own) for _, _, own in shown), default=1)
    figure, axes = output.panels(len(shown), 3, (_PANEL_WIDTH, _FRAME_HEIGHT + rows * _ROW_HEIGHT))
    figure.suptitle(plan.table.title, fontsize=12)
    for panel, (title, metric, own) in zip(axes, shown, strict=False):
        _draw_panel(panel, title, metric, own)
    if shown:
        handles, labels = axes[0].get_legend_handles_labels()
        figure.legend(handles[::-1], labels[::-1], loc="outside lower center", ncols=2, fontsize=9)
    return output.png(figure)


def _has(result: RowResult, metrics: Sequence[str]) -> bool:
    return any(_any_figure(name, [result]) for name in metrics)


def _draw_panel(axes: Axes, title: str, metric: str, results: Sequence[RowResult]) -> None:
    scale = percent_scale(metric)
    ours, published = [], []
    for number, result in enumerate(results):
        if found := result.metrics.get(metric):
            deviation = None if found.deviation is None else scale * found.deviation
            ours.append((scale * found.mean, deviation, number - _BESIDE))
        if figure := result.row.figure(result.dataset.name, metric):
            published.append((figure[0], figure[1], number + _BESIDE))
    # Draw both even without points, so that every panel has the whole legend.
    for points, colour, marker, label in (
        (published, _PUBLISHED, "D", "published"),
        (ours, _OURS, "o", "ours"),
    ):
        values, deviations, heights = np.reshape(np.array(points, float), (-1, 3)).T
        axes.errorbar(
            values,
            heights,
            xerr=output.whiskers(deviations),
            fmt=marker,
            color=colour,
            markersize=5,
            capsize=2.5,
            elinewidth=1.2,
            label=label,
        )
    axes.set_title(title, fontsize=10)
    axes.set_yticks(range(len(results)), [result.row.label for result in results], fontsize=9)
    axes.set_ylim(len(results) - 0.5, -0.5)
    axes.tick_params(axis="x", labelsize=8)
    axes.grid(axis="x", color="0.88")
    axes.set_axisbelow(True)
    axes.margins(x=0.08)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
