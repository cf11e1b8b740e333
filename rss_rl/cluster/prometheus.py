"""Scalars as Prometheus gauges of Ray's metrics agent, in addition to TensorBoard and Parquet.

Each node of a Ray cluster serves its metrics at `http://NODE:METRICS_EXPORT_PORT/metrics`, with or
without the dashboard; Ray adds the prefix `ray_` to names. Imported only with Ray in use.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from typing import SupportsFloat

from ray.util.metrics import Gauge

from rss_rl.logs.metric_registry import known_metric


def gauge_name(tag: str) -> str:
    """The name of a metric's gauge.

    >>> gauge_name("dev/all/loss")
    'rss_rl_dev_all_loss'
    """
    return "rss_rl_" + re.sub(r"[^a-zA-Z0-9]", "_", tag)


class PrometheusSink:
    """The newest value of every scalar of a run, as gauges with the tag `run`.

    Args:
        run: value of the tag `run`, such as the name of the run directory.
    """

    def __init__(self, run: str) -> None:
        self._run = {"run": run}
        self._gauges: dict[str, Gauge] = {}

    def scalars(self, step: int, values: Mapping[str, SupportsFloat]) -> None:
        """See `rss_rl.logs.metrics.ScalarSink`."""
        for tag, value in {**values, "update": step}.items():
            if tag not in self._gauges:
                self._gauges[tag] = Gauge(gauge_name(tag), _description(tag), ("run",))
            self._gauges[tag].set(float(value), self._run)


def _description(tag: str) -> str:
    """The meaning of a metric, in ASCII: Ray accepts nothing else.

    >>> _description("train/loss")
    'supervised loss of the classifier, without L2 [nats, or score2]'
    """
    metric = known_metric(tag)
    text = "updates done" if metric is None else f"{metric.meaning} [{metric.unit}]"
    return unicodedata.normalize("NFKD", text).encode("ascii", "replace").decode()
