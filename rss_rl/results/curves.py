"""Training curves: what a run has logged, by update."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

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
