"""Runs in TensorBoard: their names, and the layout of charts."""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import Any

from rss_rl.config import RunConfig
from rss_rl.metrics.measures import OWN, leading_measures

_LONGEST = 100
_DEV = "dev/(all|thresholded)"


def tensorboard_name(config: RunConfig) -> str:
    """The name of a run in TensorBoard: data, policy, share or cost, and seed.

    It is the name of the folder with the run's event files, which TensorBoard names runs by. It
    depends only on the configuration, so a run that is moved keeps it.
    """
    parts = [PurePosixPath(config.data).name]
    if config.selects:
        share = config.reward.target_share
        cost = f"cost-{config.reward.sparsity_cost:g}"
        parts += [config.policy.name, cost if share is None else f"keep-{share:g}"]
    else:
        parts.append("all-words")
    name = "_".join(re.sub(r"[^\w.-]+", "-", part) for part in parts)
    return f"{name[:_LONGEST]}_seed-{config.seed}".lstrip(".-_")


def main_charts(metric: str) -> dict[str, dict[str, list[Any]]]:
    """The layout of Custom Scalars: by category and title, regular expressions of a chart's tags.

    Args:
        metric: the one that checkpoints are chosen by; shown with the tasks' leading measures.
    """
    own = {measure.name for measure in OWN}
    scores = "|".join(sorted({*leading_measures(), metric} - own))
    charts = {
        "reward, nats": ["^reward/total$"],
        "score on dev": [f"^{_DEV}/({scores})$"],
        "share of words kept": ["^selection/kept$", f"^{_DEV}/kept$"],
        "policy lag, versions": ["^policy/lag$", "^policy/lag_max$"],
    }
    return {"rss-rl": {title: ["Multiline", tags] for title, tags in charts.items()}}
