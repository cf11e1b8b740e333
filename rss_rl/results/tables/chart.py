"""A table as a picture: ours beside the published figures, with their standard deviations."""

from __future__ import annotations

__all__ = ["draw"]

import math
from collections.abc import Sequence
from io import BytesIO

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from rss_rl.results.tables.plan import Plan
from rss_rl.results.tables.results import RowResult
from rss_rl.results.tables.spec import heading, percent_scale

_OURS, _PUBLISHED = "#0b5394", "#d9730d"
_PANELS_A_LINE = 3
_PANEL_WIDTH, _ROW_HEIGHT, _FRAME_HEIGHT = 4.2, 0.36, 1.1
_LABEL_WIDTH = 1.6
_BESIDE = 0.14
_Point = tuple[float, float, float]


def draw(plan: Plan, results: Sequence[RowResult]) -> bytes:
    """A PNG with a panel for each dataset and metric, a line in it for each row."""
    panels = [
        (dataset.label or dataset.name, metric, own)
        for dataset in plan.datasets
        if (own := [r for r in results if r.dataset is dataset and _has(r, plan.table.metrics)])
        for metric in plan.table.metrics
        if any(_has(r, [metric]) for r in own)
    ]
    across = max(1, min(_PANELS_A_LINE, len(panels)))
    down = max(1, math.ceil(len(panels) / across))
    most = max((len(own) for _, _, own in panels), default=1)
    size = across * (_PANEL_WIDTH + _LABEL_WIDTH), down * (_FRAME_HEIGHT + most * _ROW_HEIGHT) + 0.6
    figure = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(plan.table.title, fontsize=12)
    grid = figure.subplots(down, across, squeeze=False).ravel()
    for axes in grid[len(panels) :]:
        axes.set_axis_off()
    for axes, (name, metric, own) in zip(grid, panels, strict=False):
        _panel(axes, f"{name}: {heading(metric)}", metric, own)
    _legend(figure, grid[0] if panels else None)
    out = BytesIO()
    figure.savefig(out, format="png", dpi=130)
    return out.getvalue()


def _has(result: RowResult, metrics: Sequence[str]) -> bool:
    return any(_ours(result, name) or _theirs(result, name) for name in metrics)


def _ours(result: RowResult, metric: str) -> tuple[float, float] | None:
    found = result.metrics.get(metric)
    if found is None:
        return None
    scale = percent_scale(metric)
    return scale * found.mean, scale * (found.deviation or 0.0)


def _theirs(result: RowResult, metric: str) -> tuple[float, float] | None:
    figure = result.row.figure(result.dataset.name, metric)
    return None if figure is None else (figure[0], figure[1] or 0.0)


def _panel(axes: Axes, title: str, metric: str, results: Sequence[RowResult]) -> None:
    axes.set_title(title, fontsize=10)
    ours = [(*v, n - _BESIDE) for n, r in enumerate(results) if (v := _ours(r, metric))]
    theirs = [(*v, n + _BESIDE) for n, r in enumerate(results) if (v := _theirs(r, metric))]
    _points(axes, theirs, _PUBLISHED, "D", "published")
    _points(axes, ours, _OURS, "o", "ours")
    axes.set_yticks(range(len(results)), [r.row.label for r in results], fontsize=9)
    axes.set_ylim(len(results) - 0.5, -0.5)
    axes.tick_params(axis="x", labelsize=8)
    axes.grid(axis="x", color="0.88")
    axes.set_axisbelow(True)
    axes.margins(x=0.08)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def _points(axes: Axes, points: Sequence[_Point], colour: str, marker: str, label: str) -> None:
    """Points (value, deviation, place); drawn in every panel, so that any has the legend."""
    values, deviations, places = (
        ([p[i] for p in points] for i in range(3)) if points else ([], [], [])
    )
    axes.errorbar(
        values,
        places,
        xerr=deviations,
        fmt=marker,
        color=colour,
        markersize=5,
        capsize=2.5,
        elinewidth=1.2,
        label=label,
    )


def _legend(figure: Figure, axes: Axes | None) -> None:
    if axes is not None:
        handles, labels = axes.get_legend_handles_labels()
        figure.legend(handles[::-1], labels[::-1], loc="outside lower center", ncols=2, fontsize=9)
