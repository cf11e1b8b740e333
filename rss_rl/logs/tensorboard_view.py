"""How TensorBoard shows runs: the name of each, and the charts that it opens on."""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import Any

from rss_rl.config import RunConfig
from rss_rl.metrics.measures import OWN, leading_measures

_LONGEST = 100
_DEV = "dev/(all|thresholded)"


def tensorboard_name(config: RunConfig) -> str:
    """What distinguishes a run from others beside it: data, policy, share or cost, and seed.

    A folder of this name holds the run's event files, as TensorBoard names runs by their folders.
    It depends on the configuration alone, so a run that moves keeps it.
    """
    parts = [PurePosixPath(config.data).name]
    if config.phases[-1].selection == "sampled":
        share = config.reward.target_share
        cost = f"cost-{config.reward.sparsity_cost:g}"
        parts += [config.policy.name, cost if share is None else f"keep-{share:g}"]
    else:
        parts.append("all-words")
    name = "_".join(re.sub(r"[^\w.-]+", "-", part) for part in parts)
    return f"{name[:_LONGEST]}_seed-{config.seed}".lstrip(".-_")


def main_charts(metric: str) -> dict[str, dict[str, list[Any]]]:
    """The layout of Custom Scalars: by category and title the tags of a chart, as expressions.

    Args:
        metric: that checkpoints are chosen by; shown beside those that tasks are known by.
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
