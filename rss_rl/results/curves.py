"""Training curves: what a run has logged, by update."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd
import pyarrow as pa

from rss_rl.logs.metrics import read_metrics


def read_curves(run: Path) -> pd.DataFrame:
    """A row per update, a column per tag, those of dev first; NaN where nothing was logged.

    A phase begins at the update where the previous one was scored: the later score stands.

    Raises:
        CheckpointError: the metrics are damaged.
    """
    logged = read_metrics(run).to_pandas()
    curves = logged.drop_duplicates(["step", "tag"], keep="last").pivot(
        index="step", columns="tag", values="value"
    )
    return curves[sorted(curves, key=lambda tag: (not tag.startswith("dev/"), tag))]


def wide_curves(run: Path, phases: Sequence[str]) -> pa.Table:
    """`read_curves` as a table: update, phase, then every tag; null where nothing was logged.

    Args:
        phases: names, in order.

    Raises:
        CheckpointError: the metrics are damaged.
    """
    curves = read_curves(run)
    columns: dict[str, pa.Array] = {"update": pa.array(curves.index, pa.int64())}
    # Scores before the first update belong to the first phase.
    logged = curves.get("phase/index", pd.Series(0.0, curves.index))
    indices = logged.ffill().bfill().astype(int)
    columns["phase"] = pa.array([phases[index] for index in indices], pa.string())
    for tag in curves:
        columns[tag] = pa.array(curves[tag], pa.float64(), from_pandas=True)
    return pa.table(columns)
