"""A search: settings drawn from a space, and when the worse trials are stopped.

Trial 0 is the configuration as it is. Values are drawn independently; settings that are not valid
together are drawn again, and none is made twice. Trials are compared by what each scores on dev
when it gets to a rung, less the share of words that it is off its target.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from rss_rl.config import RunConfig
from rss_rl.data.store import open_prepared
from rss_rl.errors import ConfigError, RssError
from rss_rl.logs.metrics import read_metrics
from rss_rl.results.sweeps.spec import Dimension, Search
from rss_rl.seeding import generator
from rss_rl.training.trainer import find_best_metric

UPDATES, PROMISE = "updates", "promise"
REDUCTION = 3
"""At each rung the best third of the trials goes on."""
_RUNGS = 2
_TRIES = 50
"""Draws in a row without new valid settings after which a space is exhausted."""
_GUESS = 36
"""Evaluations of a run whose phases end by patience, to place the rungs."""
_COSTS = ("time/update_s", "time/evaluate_s")
_UNDEFINED = -1e9
"""Promise where the metric is undefined: finite, so that a scheduler can compare it."""


def draw(dimension: Dimension, quantile: float) -> Any:
    """The value of a dimension at a quantile in [0, 1)."""
    if dimension.choice is not None:
        return dimension.choice[int(quantile * len(dimension.choice))]
    if dimension.integer is not None:
        least, most = dimension.integer
        return least + int(quantile * (most - least + 1))
    low, high = dimension.log or dimension.uniform or (0.0, 1.0)
    value = low * (high / low) ** quantile if dimension.log else low + quantile * (high - low)
    return min(high, max(low, float(f"{value:.4g}")))


def draw_settings(
    search: Search, configure: Callable[[Mapping[str, Any]], RunConfig], seed: int
) -> Iterator[dict[str, Any]]:
    """The settings of trials 0, 1, ...: the same for equal arguments.

    Args:
        configure: the configuration with such settings, or an RssError.

    Raises:
        RssError: no settings of the space are valid.
    """
    random = generator(seed, "sweep")
    refused: RssError = ConfigError("all settings are those of the base", where="search.space")
    seen = {configure({}).model_dump_json()}
    yield {}
    failed = 0
    while failed < _TRIES:
        quantiles = random.random(len(search.space))
        pairs = zip(search.space.items(), quantiles, strict=True)
        settings = {key: draw(own, float(quantile)) for (key, own), quantile in pairs}
        failed += 1
        try:
            text = configure(settings).model_dump_json()
        except RssError as error:
            refused = error
            continue
        if text not in seen:
            seen.add(text)
            failed = 0
            yield settings
    if len(seen) == 1:
        raise refused


def rungs(config: RunConfig) -> list[int]:
    """Counted updates at which trials are compared: a ninth and a third of all.

    Updates count from the first evaluation of selected words. The first rung is never before the
    second evaluation, or while a scheduled share falls.
    """
    every = config.evaluation.every
    steps = [p.steps or 0 for p in config.phases if p.selects == config.selects]
    updates = sum(steps) if all(steps) else _GUESS * every
    first = max(2 * every, -(-updates // REDUCTION**_RUNGS))
    if falling := config.reward.share_schedule * (config.policy_updates or 0):
        first = max(first, math.ceil(falling) + every)
    return [rung for n in range(_RUNGS) if (rung := first * REDUCTION**n) < updates]


def evaluations(run: Path, config: RunConfig) -> list[dict[str, float]]:
    """Counted UPDATES and PROMISE of each evaluation of a run; a point off the target share costs
    a point of the metric."""
    metric = find_best_metric(config, open_prepared(config.data))
    mode = f"dev/{'thresholded' if config.selects else 'all'}/"
    scores: dict[int, dict[str, float]] = {}
    for row in read_metrics(run).to_pylist():
        if row["tag"].startswith(mode):
            scores.setdefault(row["step"], {})[row["tag"].removeprefix(mode)] = row["value"]
    found = []
    for update, own in sorted(scores.items()):
        value = own.get(metric.name, math.nan) * (-1 if metric.lower_is_better else 1)
        off = abs(own["kept"] - (config.reward.target_share or own["kept"]))
        promise = value - off if math.isfinite(value) else _UNDEFINED
        found.append({UPDATES: update - min(scores), PROMISE: promise})
    return found


def core_seconds(run: Path) -> float:
    """Time of all updates and evaluations of a run."""
    rows = read_metrics(run).to_pylist()
    return float(sum(row["value"] for row in rows if row["tag"] in _COSTS))
