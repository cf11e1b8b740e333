"""Training curves: logged values by update, of one run or aggregated over seeds."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from rss_rl.logs.metrics import read_metrics
from rss_rl.results.summary import Spread, spread


class Curve(NamedTuple):
    """Updates, and the value at each of them."""

    steps: list[int]
    values: list[float]


def read_curves(run: Path) -> dict[str, Curve]:
    """The curve of each tag that a run has logged.

    Raises:
        CheckpointError: the metrics are damaged.
    """
    curves: dict[str, Curve] = {}
    for row in read_metrics(run).to_pylist():
        curve = curves.setdefault(row["tag"], Curve([], []))
        curve.steps.append(row["step"])
        curve.values.append(row["value"])
    return curves


def wide_curves(run: Path, phases: Sequence[str]) -> pa.Table:
    """One row per update: update, phase, then every tag, those of dev first.

    Args:
        phases: names, in order.

    Raises:
        CheckpointError: the metrics are damaged.
    """
    curves = read_curves(run)
    tags = sorted(curves, key=lambda tag: not tag.startswith("dev/"))
    # The last of several values at an update: a phase begins at the update where the previous one
    # was scored.
    by_tag = {tag: dict(zip(*curves[tag], strict=True)) for tag in tags}
    updates = sorted({step for own in by_tag.values() for step in own})
    indices = by_tag.get("phase/index", {})
    first = indices[min(indices)] if indices else 0.0
    names, index = [], first  # scores before the first update belong to the first phase
    for update in updates:
        index = indices.get(update, index)
        names.append(phases[int(index)])
    columns: dict[str, pa.Array] = {"update": pa.array(updates, pa.int64())}
    columns["phase"] = pa.array(names, pa.string())
    for tag in tags:
        columns[tag] = pa.array([by_tag[tag].get(update) for update in updates], pa.float64())
    return pa.table(columns)


def smoothed(curve: Curve, points: int) -> Curve:
    """At most `points` means over consecutive values, in parts of equal size (± 1), each at the
    update of its part's last value.

    >>> smoothed(Curve([1, 2, 3, 4], [0.0, 1.0, 2.0, 5.0]), 2)
    Curve(steps=[2, 4], values=[0.5, 3.5])
    """
    if not curve.steps:
        return curve
    parts = np.array_split(np.arange(len(curve.steps)), min(points, len(curve.steps)))
    means = [float(np.mean([curve.values[place] for place in part])) for part in parts]
    return Curve([curve.steps[part[-1]] for part in parts], means)


def together(curves: Sequence[Curve]) -> list[tuple[int, Spread]]:
    """Mean and standard deviation at every update common to all curves.

    >>> together([Curve([1, 2], [0.0, 1.0]), Curve([2, 3], [3.0, 0.0])])
    [(2, Spread(mean=2.0, deviation=1.4142135623730951))]
    """
    by_step = [dict(zip(curve.steps, curve.values, strict=True)) for curve in curves]
    shared = sorted(set.intersection(*(set(own) for own in by_step))) if by_step else []
    return [(step, spread([own[step] for own in by_step])) for step in shared]
