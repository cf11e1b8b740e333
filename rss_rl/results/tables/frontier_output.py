"""The files of a frontier: frontier.md, frontier.csv, frontier.png."""

from __future__ import annotations

__all__ = ["write_frontier"]

import csv
import io
from collections.abc import Callable, Sequence
from io import BytesIO
from statistics import fmean

import pyarrow.compute as pc
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from rss_rl.durable import replace_file
from rss_rl.errors import CheckpointError
from rss_rl.logs.metrics import read_metrics
from rss_rl.results.markdown import grid
from rss_rl.results.spread import Spread
from rss_rl.results.tables.frontier import ALL_TOKENS_ROW, setting_of
from rss_rl.results.tables.output import Written
from rss_rl.results.tables.plan import Plan, state_of
from rss_rl.results.tables.results import RowResult, collect_results
from rss_rl.results.tables.spec import heading, percent_scale

_NONE = "-"
_COLOURS = ("#0b5394", "#d9730d", "#38761d", "#741b47", "#666666", "#b45f06")


def write_frontier(plan: Plan, show: Callable[[str], None] = lambda _: None) -> Written:
    """Read what is finished, and write the frontier of it.

    Args:
        show: is given the Markdown first: what cannot be written can still be read.

    Raises:
        CheckpointError: a report is damaged, or nothing can be written.
    """
    results = collect_results(plan, {})
    metrics = [name for name in plan.table.metrics if any(name in r.metrics for r in results)]
    costs = [_lambda(plan, result) for result in results]
    markdown = _markdown(plan, results, metrics, costs)
    files = tuple(plan.folder / f"frontier.{kind}" for kind in ("md", "csv", "png"))
    show(markdown)
    try:
        plan.folder.mkdir(parents=True, exist_ok=True)
        replace_file(files[0], markdown)
        replace_file(files[1], _csv(results, metrics, costs))
        if metrics:
            files[2].write_bytes(_draw(plan, results, metrics[0]))
    except OSError as error:
        raise CheckpointError(
            f"the frontier cannot be written: {error.strerror or error}",
            where=str(plan.folder),
            remedy="Give --out on a disk that can be written and has free space",
        ) from error
    return Written(markdown, files if metrics else files[:2])


def _lambda(plan: Plan, result: RowResult) -> float | None:
    """The lambda that a target share came to, mean over the finished runs."""
    last = []
    for run in plan.runs_of(result.row, result.dataset):
        if state_of(run) == "finished":
            found = read_metrics(run.path)
            values = found.filter(pc.equal(found["tag"], "reward/lambda"))["value"].to_pylist()
            last += values[-1:]
    return fmean(last) if last else None


def _markdown(
    plan: Plan,
    results: Sequence[RowResult],
    metrics: Sequence[str],
    costs: Sequence[float | None],
) -> str:
    header = ["policy", "asked for", "kept %", *(heading(name) for name in metrics), "λ", "runs"]
    body = []
    for result, cost in zip(results, costs, strict=True):
        body.append([
            setting_of(result.row)[0],
            result.row.label.rpartition(", ")[2] if _is_point(result) else _NONE,
            _shown(result.kept, 100),
            *(_shown(result.metrics.get(name), percent_scale(name)) for name in metrics),
            _NONE if cost is None else f"{cost:.4g}",
            f"{result.runs} of {result.planned}",
        ])  # fmt: skip
    note = (
        "Mean (sample standard deviation) over the seeds, on test, from the checkpoint that was "
        "best on dev; with a target share, of those within a point of it. λ: as it was at the end."
    )
    return f"# {plan.table.title}\n\n{grid(header, body)}\n\n{note}\n"


def _is_point(result: RowResult) -> bool:
    return result.row.name != ALL_TOKENS_ROW


def _shown(found: Spread | None, scale: int) -> str:
    if found is None:
        return _NONE
    places = 1 if scale > 1 else 4
    mean = f"{scale * found.mean:.{places}f}"
    return mean if found.deviation is None else f"{mean} ({scale * found.deviation:.{places}f})"


def _csv(
    results: Sequence[RowResult], metrics: Sequence[str], costs: Sequence[float | None]
) -> str:
    out = io.StringIO()
    names = [f"{name}{end}" for name in ("kept", *metrics) for end in ("", "_sd")]
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["policy", "row", "asked", "lambda", "runs", "planned", *names])
    for result, cost in zip(results, costs, strict=True):
        policy, asked = setting_of(result.row)
        values: list[float | None] = []
        for found in (result.kept, *(result.metrics.get(name) for name in metrics)):
            values += list(found or (None, None))
        counts = [result.runs, result.planned]
        writer.writerow([policy, result.row.name, asked, cost, *counts, *values])
    return out.getvalue()


def _draw(plan: Plan, results: Sequence[RowResult], metric: str) -> bytes:
    """A PNG: the share kept across, the metric upwards, a line for each policy."""
    figure = Figure(figsize=(6.4, 4.4), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    axes.set_title(plan.table.title, fontsize=11)
    axes.set_xlabel("tokens kept, % of test")
    axes.set_ylabel(heading(metric))
    points = [r for r in results if _is_point(r) and r.kept and metric in r.metrics]
    policies = list(dict.fromkeys(setting_of(r.row)[0] for r in points))
    for number, policy in enumerate(policies):
        own = [r for r in points if setting_of(r.row)[0] == policy]
        _line(axes, own, metric, policy, _COLOURS[number % len(_COLOURS)])
    scale = percent_scale(metric)
    for result in results:
        if not _is_point(result) and metric in result.metrics:
            level = scale * result.metrics[metric].mean
            axes.axhline(level, color="0.4", linestyle="--", label="all tokens")
    axes.grid(color="0.9")
    axes.set_axisbelow(True)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(fontsize=9)
    out = BytesIO()
    figure.savefig(out, format="png", dpi=130)
    return out.getvalue()


def _line(axes: Axes, results: Sequence[RowResult], metric: str, label: str, colour: str) -> None:
    scale = percent_scale(metric)
    points = [(r.kept, r.metrics[metric]) for r in results if r.kept is not None]
    found = sorted(points, key=lambda point: point[0].mean)
    axes.errorbar(
        [100 * kept.mean for kept, _ in found],
        [scale * value.mean for _, value in found],
        xerr=[100 * (kept.deviation or 0.0) for kept, _ in found],
        yerr=[scale * (value.deviation or 0.0) for _, value in found],
        fmt="o-",
        markersize=5,
        capsize=2.5,
        color=colour,
        label=label,
    )
