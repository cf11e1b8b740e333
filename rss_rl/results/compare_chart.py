"""The curves of several groups of runs as a picture."""

from __future__ import annotations

__all__ = ["draw_curves"]

from collections.abc import Sequence
from io import BytesIO

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from rss_rl.logs.metrics import read_metrics
from rss_rl.metrics.measures import find_measure, leading_measures
from rss_rl.results.comparing import Group, Run

_COLOURS = ("#0b5394", "#d9730d", "#38761d", "#741b47", "#666666", "#b45f06", "#a61c00", "#134f5c")
_ON_DEV = ("kept", "reward", "loss")
_IN_TRAINING = ("reward/lambda", "selection/kept")
_ACROSS = 2
_MOST_POINTS = 300
_Curve = tuple[list[int], list[float]]


def draw_curves(groups: Sequence[Group]) -> bytes | None:
    """A PNG with a panel for each metric, a thin line for each run; None where nothing is logged.

    Raises:
        CheckpointError: metrics of a run are damaged.
    """
    logged = {run.path: _by_tag(run) for group in groups for run in group.runs}
    panels = []
    wanted = {
        find_measure(name).label: [f"dev/{mode}/{name}" for mode in ("thresholded", "all")]
        for name in (*leading_measures(), *_ON_DEV)
    } | {tag: [tag] for tag in _IN_TRAINING}
    for title, tags in wanted.items():
        if any(tag in own for own in logged.values() for tag in tags):
            panels.append((title, tags))
    if not panels:
        return None
    down = -(-len(panels) // _ACROSS)
    figure = Figure(figsize=(5.2 * _ACROSS, 2.9 * down), layout="constrained")
    FigureCanvasAgg(figure)
    grid = figure.subplots(down, _ACROSS, squeeze=False).ravel()
    for axes in grid[len(panels) :]:
        axes.set_axis_off()
    for axes, (_, tags) in zip(grid, panels, strict=False):
        for number, group in enumerate(groups):
            colour = _COLOURS[number % len(_COLOURS)]
            for run in group.runs:
                _line(axes, logged[run.path], tags, group.name, colour)
    _legend(figure, groups)
    out = BytesIO()
    figure.savefig(out, format="png", dpi=120)
    return out.getvalue()


def _by_tag(run: Run) -> dict[str, _Curve]:
    curves: dict[str, _Curve] = {}
    table = read_metrics(run.path)
    columns = (table[name].to_pylist() for name in ("step", "tag", "value"))
    for step, tag, value in zip(*columns, strict=True):
        steps, values = curves.setdefault(tag, ([], []))
        steps.append(step)
        values.append(value)
    return curves


def _line(
    axes: Axes, curves: dict[str, _Curve], tags: Sequence[str], label: str, colour: str
) -> None:
    found = [tag for tag in tags if tag in curves]
    for place, tag in enumerate(found):
        steps, values = curves[tag]
        thinned = max(1, len(steps) // _MOST_POINTS)
        # With every token first, then with a selection: one metric, told apart by the dashes.
        style = "--" if tag.startswith("dev/all/") and place else "-"
        axes.plot(
            steps[::thinned], values[::thinned], style, color=colour, linewidth=0.9, alpha=0.8
        )
        axes.set_title(tag.replace("dev/all/", "dev/").replace("thresholded/", ""), fontsize=10)
    axes.set_xlabel("updates", fontsize=8)
    axes.tick_params(labelsize=8)
    axes.grid(color="0.9")


def _legend(figure: Figure, groups: Sequence[Group]) -> None:
    axes = figure.axes[0]
    for number, group in enumerate(groups):
        axes.plot([], [], color=_COLOURS[number % len(_COLOURS)], label=group.name)
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=8, fontsize=9)
