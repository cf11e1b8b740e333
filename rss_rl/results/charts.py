"""The charts of a report, drawn by matplotlib as SVG in the page's colours, light or dark."""

from __future__ import annotations

import io
import math
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from html import escape
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from rss_rl.logs.metrics import read_curves
from rss_rl.metrics.measures import find_measure
from rss_rl.runs.run_directory import ALL_TOKENS

_TEXT, _SOFT, _LINE = "#010101", "#020202", "#030303"
_SERIES = ("#0a0101", "#0a0102", "#0a0103", "#0a0104")
_PAGE = {_TEXT: "text", _SOFT: "soft", _LINE: "line"} | {
    colour: f"series-{number}" for number, colour in enumerate(_SERIES, 1)
}
"""Stand-ins that matplotlib draws with, and the variables of the style sheet that replace them."""
COLOURS = len(_SERIES)
_STYLE: Any = {
    "svg.fonttype": "none",
    "svg.hashsalt": "report",
    "text.parse_math": False,
    "font.size": 10.5,
    "text.color": _TEXT,
    "axes.edgecolor": _LINE,
    "axes.labelcolor": _SOFT,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": _LINE,
    "grid.linewidth": 0.6,
    "xtick.color": _SOFT,
    "ytick.color": _SOFT,
    "lines.linewidth": 1.6,
}
_SIZE = (5.2, 3.2)  # inches
_POINTS = 80


def curve_charts(frame: pd.DataFrame, metric: str | None) -> list[Markup]:
    """Learning curves of the first groups, as many as there are colours.

    Of several groups each has one curve in a chart, of a single group what there is.

    Args:
        frame: of runs on the same data, with groups. metric: the measure of the first chart.

    Raises:
        CheckpointError: the metrics of a run are damaged.
    """
    runs = frame.drop_duplicates("run")
    groups = [of_group for _, of_group in runs.groupby("group", sort=False)][:COLOURS]
    logged = {
        int(of_group["group"].iloc[0]): [_logged(Path(r)) for r in of_group["run"]]
        for of_group in groups
    }
    first, charts = runs.iloc[0], []
    for title, unit, percent, tags in _wanted(metric):
        axes = _chart(title, "updates", unit)
        said: list[str] = []
        form = "{:.1%}" if percent else "{:.3g}"
        for group, of_group in logged.items():
            there = [tag for tag in tags if all(tag in run for run in of_group)]
            for tag in there if len(logged) == 1 else there[:1]:
                name = f"group {group}" if len(logged) > 1 else tags[tag]
                mean = _draw(axes, name, [run[tag] for run in of_group], _SERIES[len(said)], tag)
                if not mean.empty:  # otherwise seeds have no update in common
                    ends = [form.format(value) for value in mean.iloc[[0, -1]]]
                    said.append(f"{name} from {ends[0]} to {ends[1]}".strip())
        if not said:
            continue
        target_share = first["reward.target_share"]
        if unit == "share kept" and not pd.isna(target_share):
            axes.axhline(
                target_share,
                color=_SOFT,
                linestyle=":",
                label=f"asked for: {100 * target_share:.3g}%",
            )
        axes.set_xlim(left=0)
        axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
        if percent:
            _in_percent(axes.yaxis)
        _legend(axes)
        _phases(axes, logged[int(first["group"])][0])
        charts.append(_svg(axes, "; ".join(said)))
    return charts


def _wanted(metric: str | None) -> Iterator[tuple[str, str, bool, Mapping[str, str]]]:
    """Title, unit, whether in percent, and tags with what each is called, of each chart."""
    if metric is not None:
        measure = find_measure(metric)
        title = f"{measure.label[:1].upper()}{measure.label[1:]} on dev"
        tags = {f"dev/thresholded/{metric}": "kept words", f"dev/all/{metric}": "all words"}
        yield title, measure.label, measure.percent, tags
    kept = {"dev/thresholded/kept": "dev", "selection/thresholded_kept": "training batches"}
    yield "Share of words kept", "share kept", True, kept
    yield "Price of a word, λ", "λ, nats", False, {"reward/lambda": ""}
    yield "Reward of the training batches", "reward, nats", False, {"reward/total": ""}
    loss = {"dev/thresholded/loss": "dev", "train/loss": "training"}
    yield "Loss of the classifier", "loss", False, loss


def _logged(run: Path) -> pd.DataFrame:
    """Curves of a run; those of all words from the comparison, if there is one."""
    curves = read_curves(run)
    if not (run / ALL_TOKENS / "metrics").is_dir():
        return curves
    whole = read_curves(run / ALL_TOKENS).filter(like="dev/all/")
    return curves.drop(columns=whole.columns, errors="ignore").join(whole, how="outer")


def _draw(axes: Axes, name: str, curves: Sequence[pd.Series], colour: str, tag: str) -> pd.Series:
    """Draw mean and standard deviation over runs by update; returns the mean.

    Scores of dev are points that are joined, and stand between them where a run was scored at other
    updates; a curve of training batches has a gap where a phase did not log it.
    """
    on_dev = tag.startswith("dev/")
    curves = [curve.dropna() for curve in curves] if on_dev else curves
    stretch = max(1, math.ceil(max(map(len, curves)) / _POINTS))
    means = pd.concat([_smooth(curve, stretch) for curve in curves], axis=1)
    if on_dev:
        means = means.sort_index().interpolate("index", limit_area="inside").dropna()
    mean, off = means.mean(axis=1, skipna=False), means.std(axis=1)
    if mean.isna().all():
        return mean.dropna()
    steps = mean.index.to_numpy()
    axes.plot(steps, mean, color=colour, marker="." if on_dev else "", label=name or None)
    if len(curves) > 1:
        off = off.reindex(mean.index)
        axes.fill_between(steps, mean - off, mean + off, color=colour, alpha=0.18, linewidth=0)
    return mean.dropna()


def _smooth(curve: pd.Series, stretch: int) -> pd.Series:
    """Means over stretches of updates, each at the stretch's last update."""
    ends = np.ceil(curve.index / stretch) * stretch
    return curve.groupby(np.minimum(ends, curve.index.max())).mean()


def _phases(axes: Axes, curves: pd.DataFrame) -> None:
    """Mark where the phases of a run begin, by their numbers above the chart."""
    if "phase/index" not in curves:
        return
    indices = curves["phase/index"].dropna()
    begins = indices[indices.diff() != 0]
    for step in begins.index:
        axes.axvline(step - 1, color=_SOFT, linewidth=0.7, linestyle=":")
    above = axes.secondary_xaxis("top")
    above.set_xticks(begins.index - 1, [f"{int(index) + 1}" for index in begins])
    above.tick_params(length=0, labelcolor=_SOFT)
    above.spines["top"].set_visible(False)


def calibration_chart(bins: pd.DataFrame) -> Markup:
    """Accuracy by confidence, see `rss_rl.results.scores.calibration`; points by their rows."""
    axes = _chart("Confidence and accuracy", "confidence", "accuracy")
    low = min(0.5, bins["confidence"].min())
    axes.plot([low, 1], [low, 1], color=_SOFT, linestyle=":", label="as it should be")
    sizes = 20 + 180 * bins["rows"] / bins["rows"].max()
    style: Any = {"color": _SERIES[0], "clip_on": False}
    axes.plot(bins["confidence"], bins["accuracy"], **style)
    axes.scatter(bins["confidence"], bins["accuracy"], s=sizes, label="texts", **style)
    _legend(axes)
    _in_percent(axes.xaxis)
    _in_percent(axes.yaxis)
    said = zip(bins["confidence"], bins["accuracy"], bins["rows"], strict=True)
    return _svg(
        axes, "; ".join(f"{right:.0%} right at {sure:.0%}, {n} texts" for sure, right, n in said)
    )


def coverage_chart(curve: pd.DataFrame) -> Markup:
    """Accuracy by the share of the texts that are predicted, see `rss_rl.results.scores`."""
    axes = _chart("Leaving the least certain out", "predicted texts", "accuracy")
    axes.plot(curve["coverage"], curve["accuracy"], color=_SERIES[0], marker="o", clip_on=False)
    _in_percent(axes.xaxis)
    _in_percent(axes.yaxis)
    said = zip(curve["coverage"], curve["accuracy"], strict=True)
    return _svg(axes, "; ".join(f"{right:.0%} right of {share:.0%}" for share, right in said))


def rows_chart(curve: Sequence[Mapping[str, Any]], metric: str) -> Markup:
    """Scores by the number of rows learnt from, see `rss_rl.results.sentences.rows_sentence`."""
    measure, rows = find_measure(metric), [part["rows"] for part in curve]
    axes = _chart("More rows", "rows of training", measure.label)
    kinds = {"thresholded": "kept words", "linear": "linear classifier of all words"}
    for (mode, name), colour in zip(kinds.items(), _SERIES, strict=False):
        scores = [part["modes"].get(mode, {}).get(metric) for part in curve]
        if None not in scores:
            axes.plot(rows, scores, color=colour, marker=".", label=name)
    axes.set_xlim(left=0)
    if measure.percent:
        _in_percent(axes.yaxis)
    _legend(axes)
    return _svg(axes, f"from {rows[0]:,} to {rows[-1]:,} rows")


@contextmanager
def _style() -> Iterator[None]:
    """The style of the page, whose own fonts show letters that matplotlib's does not have."""
    with mpl.rc_context(_STYLE), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from font")
        yield


def _chart(title: str, x: str, y: str) -> Axes:
    """An empty chart."""
    with _style():
        figure = Figure(_SIZE, layout="constrained")
        FigureCanvasSVG(figure)
        axes: Axes = figure.subplots()
    figure.suptitle(title, x=0.01, ha="left", fontsize=12, fontweight="bold", color=_TEXT)
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    return axes


def _legend(axes: Axes) -> None:
    """Below the chart, where it covers no curve."""
    if axes.get_legend_handles_labels()[1]:
        style: Any = {"frameon": False, "fontsize": 10, "labelcolor": _TEXT, "ncols": 3}
        _figure(axes).legend(loc="outside lower left", **style)


def _figure(axes: Axes) -> Figure:
    figure = axes.get_figure(root=True)
    assert figure is not None
    return figure


def _in_percent(axis: Axis) -> None:
    """Show the ticks of an axis of shares in percent, within 0 and 1."""
    axis.set_major_formatter(PercentFormatter(1))
    low, high = axis.get_view_interval()
    axis.set_view_interval(max(low, -0.005), min(high, 1.005), ignore=True)


def _svg(axes: Axes, description: str) -> Markup:
    """The chart as an SVG element; `description` is for screen readers."""
    figure, out = _figure(axes), io.StringIO()
    nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    with _style():
        figure.savefig(out, format="svg", transparent=True, metadata=nothing)
    text = out.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<style.*?</style>", "", text, flags=re.DOTALL)
    text = re.sub(r' id="[A-Za-z]\w*_\d+"', "", text)  # the same in every chart
    for colour, name in _PAGE.items():
        text = text.replace(colour, f"var(--{name})")
    label = escape(f"{figure.get_suptitle()}: {description}")
    return Markup(text.replace("<svg", f'<svg class="chart" role="img" aria-label="{label}"', 1))
