"""The charts of a report: learning curves, words by frequency, the frontier of groups."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from markupsafe import Markup

from rss_rl.metrics.measures import find_measure
from rss_rl.pages.charts import COLOURS, Chart, Level, Line, Point, draw
from rss_rl.results.comparing import Group
from rss_rl.results.curves import Curve, read_curves, smoothed, together
from rss_rl.results.reading import Reading, WordCount, words_by_share
from rss_rl.results.summary import Spread, spread
from rss_rl.runs.run_directory import ALL_TOKENS

_POINTS = 80
_LABELLED = 14
_FEWEST = 5
"""Fewest occurrences of a word in the chart."""
_MOST_WORDS = 400
_Curves = Mapping[str, Curve]


def curve_charts(groups: Sequence[Group], metric: str | None) -> list[Markup]:
    """Learning curves, of as many groups as there are colours.

    Raises:
        CheckpointError: the metrics of a run are damaged.
    """
    shown = groups[:COLOURS]
    logged = [[_logged(run.path) for run in group.runs] for group in shown]
    asked = groups[0].runs[0].config["reward"]["target_share"]
    levels = list(_phases(groups[0], logged[0][0]))
    target = [] if asked is None else [Level(asked, f"{asked:.0%} asked for")]
    charts = []
    if metric is not None:
        measure = find_measure(metric)
        tags = {f"dev/thresholded/{metric}": "kept words", f"dev/all/{metric}": "all words"}
        charts.append(
            Chart(f"{measure.label[:1].upper()}{measure.label[1:]} on dev", "updates",
                  measure.label, _lines(shown, logged, tags), levels=levels,
                  y_format=".0%" if measure.percent else ".3g", shares=measure.percent)
        )  # fmt: skip
    kept = {"dev/thresholded/kept": "dev", "selection/thresholded_kept": "training batches"}
    charts += [
        Chart("Share of words kept", "updates", "share kept", _lines(shown, logged, kept),
              levels=[*levels, *target], y_format=".0%", shares=True),
        Chart("Reward of the training batches", "updates", "reward, nats",
              _lines(shown, logged, {"reward/total": ""}), levels=levels),
        Chart("Loss of the classifier", "updates", "loss",
              _lines(shown, logged, {"train/loss": "training", "dev/thresholded/loss": "dev"}),
              levels=levels),
    ]  # fmt: skip
    return [draw(chart) for chart in charts if chart.lines]


def _logged(path: Path) -> dict[str, Curve]:
    """Curves of a run; those of all tokens from the comparison, if there is one."""
    curves = read_curves(path)
    if (path / ALL_TOKENS / "metrics").is_dir():
        whole = read_curves(path / ALL_TOKENS)
        curves |= {tag: curve for tag, curve in whole.items() if tag.startswith("dev/all/")}
    return curves


def _phases(group: Group, curves: _Curves) -> Iterator[Level]:
    """Markers where the phases of a run begin."""
    names = [phase["name"] for phase in group.runs[0].config["phases"]]
    steps, values = curves.get("phase/index", Curve([], []))
    before = None
    for step, value in zip(steps, values, strict=True):
        if value != before and int(value) < len(names):
            yield Level(step - 1, names[int(value)], axis="x")
        before = value


def _lines(
    groups: Sequence[Group], logged: Sequence[Sequence[_Curves]], tags: Mapping[str, str]
) -> list[Line]:
    """A line for each group and tag, with a band over its seeds; the first tag is solid."""
    lines = []
    for series, (group, runs) in enumerate(zip(groups, logged, strict=True)):
        for number, (tag, what) in enumerate(tags.items()):
            logs = [_parts(own, tag) for own in runs if tag in own]
            if len(logs) < len(runs):
                continue
            # Seeds may have different numbers of parts, as their phases can end at other updates.
            found = [together(part) for part in zip(*logs, strict=False)]
            found = [part for part in found if part]
            if not found:
                continue
            name = group.name if len(groups) > 1 else ""
            label = ", ".join(part for part in (name, what) if part)
            points = [(float(step), over.mean) for part in found for step, over in part]
            band = _band([over for part in found for _, over in part])
            gaps = list(itertools.accumulate(map(len, found[:-1])))
            lines.append(Line(label, points, series, number > 0, band, gaps))
    return lines


def _parts(logged: _Curves, tag: str) -> list[Curve]:
    """A smoothed curve, cut where whole phases did not log it, such as a loss that was not used.

    Dev scores are a single part, as they are logged only at evaluations.
    """
    curve, (updates, phases) = logged[tag], logged.get("phase/index", Curve([], []))
    if tag.startswith("dev/") or not updates:
        return [smoothed(curve, _POINTS)]
    numbers = np.asarray(phases)[np.searchsorted(updates[:-1], curve.steps)]
    ends = [0, *(np.flatnonzero(np.diff(numbers) > 1) + 1).tolist(), len(numbers)]
    return [
        smoothed(
            Curve(curve.steps[start:end], curve.values[start:end]),
            max(1, _POINTS * (end - start) // len(numbers)),
        )
        for start, end in itertools.pairwise(ends)
    ]


def _band(found: Sequence[Spread]) -> list[tuple[float, float]]:
    """Mean ± one standard deviation; empty for a single seed."""
    return [
        (over.mean - over.deviation, over.mean + over.deviation)
        for over in found
        if over.deviation is not None
    ]


def words_chart(reading: Reading) -> Markup:
    """Words by number of occurrences and share kept."""
    often = [word for word in reading.words if word.count >= _FEWEST]
    ranked = [word for word in words_by_share(reading) if word.count >= _FEWEST]
    frequent = sorted(often, key=lambda word: -word.count)
    named = {word.word for word in (*ranked[:_LABELLED], *frequent[:_LABELLED])}
    drawn: dict[str, WordCount] = {
        word.word: word for word in (*ranked[:_LABELLED], *frequent[:_MOST_WORDS])
    }
    points = [
        Point(word.count, word.share, word.word, named=word.word in named)
        for word in drawn.values()
    ]
    return draw(
        Chart(
            "Words by frequency and share kept",
            "occurrences in the texts read",
            "share kept",
            points=points,
            levels=[Level(reading.share, f"{reading.share:.0%} of all words")],
            y_format=".0%",
            shares=True,
            logarithmic=True,
            width=1060,
            height=460,
        )
    )


def frontier_chart(groups: Sequence[Group], split: str, metric: str | None) -> Markup:
    """Share kept and score of each group; empty with fewer than two groups that select."""
    if metric is None:
        return Markup()
    measure = find_measure(metric)
    by_policy: dict[str, list[tuple[str, Spread, Spread]]] = {}
    for group in groups:
        reports = [run.report or {} for run in group.runs]
        scores = [report["splits"].get(split, {}).get("thresholded") for report in reports]
        if all(own is not None and own.get(metric) is not None for own in scores):
            kept, value = (spread([own[name] for own in scores]) for name in ("kept", metric))
            policy = group.runs[0].config["policy"]["name"]
            by_policy.setdefault(policy, []).append((group.name, kept, value))
    if sum(map(len, by_policy.values())) < 2:
        return Markup()
    lines, points = [], []
    for series, (policy, found) in enumerate(by_policy.items()):
        ordered = sorted(found, key=lambda point: point[1].mean)
        lines.append(Line(policy, [(k.mean, v.mean) for _, k, v in ordered], series))
        points += [
            Point(k.mean, v.mean, name, series, k.deviation or 0.0, v.deviation or 0.0)
            for name, k, v in ordered
        ]
    return draw(
        Chart(
            "What fewer words cost",
            "share of words kept",
            measure.label,
            lines,
            points,
            x_format=".0%",
            y_format=".1%" if measure.percent else ".3g",
            shares=measure.percent,
            width=1060,
            height=420,
        )
    )
