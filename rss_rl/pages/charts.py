"""The charts of a report, drawn by matplotlib as SVG in the page's colours, light or dark."""

from __future__ import annotations

import io
import itertools
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
from matplotlib.text import Annotation
from matplotlib.ticker import MaxNLocator, PercentFormatter, StrMethodFormatter
from matplotlib.transforms import Bbox

from rss_rl.logs.metrics import read_curves
from rss_rl.metrics.measures import find_measure
from rss_rl.results.reading import Reading
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
    "axes.titlecolor": _TEXT,
    "axes.titlesize": 12,
    "axes.titleweight": "semibold",
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
_CURVE, _WIDE = (5.2, 3.0), (10.6, 4.4)  # inches
_POINTS = 80
_LABELLED, _FEWEST, _MOST_WORDS = 14, 5, 400
"""Words named at each end; fewest occurrences of a word drawn; most words drawn."""


def curve_charts(frame: pd.DataFrame, metric: str | None) -> list[Markup]:
    """Learning curves of the first groups, as many as there are colours.

    Colours tell groups apart, or what is drawn of a single group.

    Args:
        frame: of runs on the same data, with groups. metric: the measure of the first chart.

    Raises:
        CheckpointError: the metrics of a run are damaged.
    """
    runs = frame.drop_duplicates("run")
    groups = [own for _, own in runs.groupby("group", sort=False)][:COLOURS]
    logged = {int(own["group"].iloc[0]): [_logged(Path(r)) for r in own["run"]] for own in groups}
    first, several = runs.iloc[0], len(logged) > 1
    charts = []
    for title, unit, percent, tags in _wanted(metric):
        axes, said = _chart(title, _CURVE, "updates", unit), []
        form = "{:.1%}" if percent else "{:.3g}"
        for series, (group, own) in enumerate(logged.items()):
            for number, (tag, what) in enumerate(tags.items()):
                curves = [run[tag].dropna() for run in own if tag in run]
                if len(curves) == len(own) and all(map(len, curves)):
                    name = ", ".join([f"group {group}"] * several + [what] * bool(what))
                    colour, dash = (series, number) if several else (number, 0)
                    mean = _draw(axes, name, curves, colour, dash, tag.startswith("dev/"))
                    if mean.empty:  # seeds that logged at other updates
                        continue
                    ends = [form.format(value) for value in mean.iloc[[0, -1]]]
                    said.append(f"{name} from {ends[0]} to {ends[1]}".strip())
        if not said:
            continue
        asked = first["reward.target_share"]
        if unit == "share kept" and not pd.isna(asked):
            axes.axhline(asked, color=_SOFT, linestyle=":", label=f"asked for: {100 * asked:.3g}%")
        axes.set_xlim(left=0)
        axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
        if percent:
            _in_percent(axes.yaxis)
        if axes.get_legend_handles_labels()[1]:
            axes.legend(frameon=False, fontsize=10, labelcolor=_TEXT)
        _phases(axes, first, logged[int(first["group"])][0])
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
    loss = {"train/loss": "training", "dev/thresholded/loss": "dev"}
    yield "Loss of the classifier", "loss", False, loss


def _logged(run: Path) -> pd.DataFrame:
    """Curves of a run; those of all words from the comparison, if there is one."""
    curves = read_curves(run)
    if not (run / ALL_TOKENS / "metrics").is_dir():
        return curves
    whole = read_curves(run / ALL_TOKENS).filter(like="dev/all/")
    return curves.drop(columns=whole.columns, errors="ignore").join(whole, how="outer")


def _draw(
    axes: Axes, name: str, curves: Sequence[pd.Series], colour: int, dash: int, on_dev: bool
) -> pd.Series:
    """Draw mean and standard deviation over runs by update; returns the mean.

    Points of training batches are not joined over updates of a phase that did not log them.
    """
    stretch = math.ceil(max(map(len, curves)) / _POINTS)
    means = pd.concat([_smooth(own, stretch) for own in curves], axis=1).dropna()
    steps, mean, off = means.index.to_numpy(), means.mean(axis=1), means.std(axis=1)
    gap = math.inf if on_dev else 3 * stretch
    cuts = [0, *(np.flatnonzero(np.diff(steps) > gap) + 1), len(steps)]
    style: Any = {"color": _SERIES[colour], "linestyle": ("-", "--")[dash]}
    for start, end in itertools.pairwise(cuts):
        part = slice(start, end)
        label, marker = None if start else name or None, "." if end - start == 1 else ""
        axes.plot(steps[part], mean.iloc[part], label=label, marker=marker, **style)
        if len(curves) > 1:
            ends = (mean - off).iloc[part], (mean + off).iloc[part]
            axes.fill_between(steps[part], *ends, color=_SERIES[colour], alpha=0.18, linewidth=0)
    return mean


def _smooth(curve: pd.Series, stretch: int) -> pd.Series:
    """Means over stretches of updates, each at the stretch's last update."""
    ends = np.ceil(curve.index / stretch) * stretch
    return curve.groupby(np.minimum(ends, curve.index.max())).mean()


def _phases(axes: Axes, settings: Mapping[str, Any], curves: pd.DataFrame) -> None:
    """Mark where the phases of a run begin."""
    if "phase/index" not in curves:
        return
    indices = curves["phase/index"].dropna()
    labels = []
    for step, index in indices[indices.diff() != 0].items():
        axes.axvline(step - 1, color=_SOFT, linewidth=0.7, linestyle=":")
        name = settings[f"phases.{int(index)}.name"]
        labels.append(_label(axes, name, (step - 1, 1), ("data", "axes fraction"), _SOFT))
    _keep_apart(axes, labels)


def words_chart(reading: Reading) -> Markup:
    """Words by number of occurrences and share kept; empty if none occurs often enough."""
    words = reading.words[reading.words["count"] >= _FEWEST]
    frequent = words.sort_values("count", ascending=False, kind="stable")
    drawn = _both(words[:_LABELLED], frequent[:_MOST_WORDS])
    if drawn.empty:
        return Markup()
    axes = _chart("Words by frequency and share kept", _WIDE, "occurrences", "share kept")
    axes.set_xscale("log")
    axes.scatter(drawn["count"], drawn["share"], s=18, color=_SERIES[0], alpha=0.75)
    axes.axhline(reading.share, color=_SOFT, linestyle=":")
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    axes.xaxis.set_minor_formatter(StrMethodFormatter("{x:,.0f}"))
    _in_percent(axes.yaxis)
    named = _both(words[:_LABELLED], frequent[:_LABELLED])
    places = zip(named.index, named["count"], named["share"], strict=True)
    _keep_apart(axes, [_label(axes, word, (count, share)) for word, count, share in places])
    return _svg(axes, f"{len(drawn)} words; {reading.share:.1%} of all words are kept")


def calibration_chart(bins: pd.DataFrame) -> Markup:
    """Accuracy by confidence, see `rss_rl.results.classes.calibration`; points by their rows."""
    axes = _chart("Confidence and accuracy", _CURVE, "confidence", "accuracy")
    low = min(0.5, bins["confidence"].min())
    axes.plot([low, 1], [low, 1], color=_SOFT, linestyle=":", label="as it should be")
    sizes = 20 + 180 * bins["rows"] / bins["rows"].max()
    axes.plot(bins["confidence"], bins["accuracy"], color=_SERIES[0])
    axes.scatter(bins["confidence"], bins["accuracy"], s=sizes, color=_SERIES[0], label="texts")
    axes.legend(frameon=False, fontsize=10, labelcolor=_TEXT, loc="upper left")
    _in_percent(axes.xaxis)
    _in_percent(axes.yaxis)
    said = zip(bins["confidence"], bins["accuracy"], bins["rows"], strict=True)
    return _svg(
        axes, "; ".join(f"{right:.0%} right at {sure:.0%}, {n} texts" for sure, right, n in said)
    )


def _both(first: pd.DataFrame, second: pd.DataFrame) -> pd.DataFrame:
    joined = pd.concat([first, second])
    return joined[~joined.index.duplicated()]


def frontier_chart(means: pd.DataFrame, split: str, metric: str | None) -> Markup:
    """Share kept and score of each group; empty with fewer than two groups that select.

    Args:
        means: see `rss_rl.results.frame.grouped`.
    """
    shown = means[(means["split"] == split) & (means["mode"] == "thresholded")]
    if metric is None or shown[metric].notna().sum() < 2:
        return Markup()
    measure = find_measure(metric)
    axes = _chart("What fewer words cost", _WIDE, "share of words kept", measure.label)
    labels, said = [], []
    for number, (policy, found) in enumerate(shown.groupby("policy.name", sort=False)):
        own = found.sort_values("kept")
        axes.errorbar(
            own["kept"],
            own[metric],
            xerr=own["kept_sd"].fillna(0),
            yerr=own[f"{metric}_sd"].fillna(0),
            color=_SERIES[number % COLOURS],
            marker="o",
            markersize=5,
            label=policy,
        )
        for group, kept, value in zip(own["group"], own["kept"], own[metric], strict=True):
            labels.append(_label(axes, str(group), (kept, value)))
            said.append(f"group {group} ({policy}) {value:.3g} at {kept:.1%} kept")
    for axis, percent in ((axes.xaxis, True), (axes.yaxis, measure.percent)):
        if percent:
            _in_percent(axis)
    axes.legend(frameon=False, fontsize=10, labelcolor=_TEXT)
    _keep_apart(axes, labels)
    return _svg(axes, "; ".join(said))


@contextmanager
def _style() -> Iterator[None]:
    """The style of the page, whose own fonts show letters that matplotlib's does not have."""
    with mpl.rc_context(_STYLE), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from font")
        yield


def _chart(title: str, size: tuple[float, float], x: str, y: str) -> Axes:
    """An empty chart; `size` in inches."""
    with _style():
        figure = Figure(size, layout="constrained")
        FigureCanvasSVG(figure)
        axes: Axes = figure.subplots()
    axes.set_title(title, loc="left", pad=16)
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    return axes


def _in_percent(axis: Axis) -> None:
    """Show the ticks of an axis of shares in percent, within 0 and 1."""
    axis.set_major_formatter(PercentFormatter(1))
    low, high = axis.get_view_interval()
    axis.set_view_interval(max(low, -0.005), min(high, 1.005), ignore=True)


def _label(
    axes: Axes,
    text: str,
    place: tuple[float, float],
    within: Any = "data",
    colour: str = _TEXT,
) -> Annotation:
    style: Any = {"xytext": (3, 3), "textcoords": "offset points", "fontsize": 9.5, "color": colour}
    return axes.annotate(text, place, xycoords=within, parse_math=False, **style)


def _keep_apart(axes: Axes, labels: Sequence[Annotation]) -> None:
    """Remove labels that cover earlier ones or leave the figure."""
    figure = _figure(axes)
    taken: list[Bbox] = []
    with _style():
        figure.draw_without_rendering()
        for label in labels:
            box = label.get_window_extent()
            if box.x1 > figure.bbox.x1 or any(box.overlaps(other) for other in taken):
                label.remove()
            else:
                taken.append(box)


def _figure(axes: Axes) -> Figure:
    figure = axes.get_figure(root=True)
    assert figure is not None
    return figure


def _svg(axes: Axes, description: str) -> Markup:
    """The chart as an SVG element; `description` is for screen readers."""
    out = io.StringIO()
    nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    with _style():
        _figure(axes).savefig(out, format="svg", transparent=True, metadata=nothing)
    text = out.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<style.*?</style>", "", text, flags=re.DOTALL)
    text = re.sub(r' id="[A-Za-z]\w*_\d+"', "", text)  # the same in every chart
    for colour, name in _PAGE.items():
        text = text.replace(colour, f"var(--{name})")
    label = escape(f"{axes.get_title(loc='left')}: {description}")
    return Markup(text.replace("<svg", f'<svg class="chart" role="img" aria-label="{label}"', 1))
