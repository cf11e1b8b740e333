"""The roles of a run on the Ray cluster that this process has joined.

Scalars also go to Prometheus gauges of Ray's metrics agent: each node of a cluster serves them at
`http://NODE:METRICS_EXPORT_PORT/metrics`, with or without the dashboard; Ray adds the prefix `ray_`
to names.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager

from ray.util.metrics import Gauge

from rss_rl.cluster.learner_actors import RayLearners
from rss_rl.cluster.sampler_actor import ray_samplers
from rss_rl.config import RunConfig
from rss_rl.data.store import Prepared
from rss_rl.logs.events import EventSink
from rss_rl.logs.logger import RunLogger
from rss_rl.logs.metric_registry import known_metric
from rss_rl.rollouts.backend import Backend
from rss_rl.training.learner import Learner
from rss_rl.training.roles import LocalRoles


class RayRoles:
    """Samplers and, if `learner.actors` is set, learners as actors.

    The cluster must have been joined with `connect`.
    """

    def learner(self, config: RunConfig, prepared: Prepared) -> AbstractContextManager[Learner]:
        """See `Roles`."""
        if not config.learner.actors:
            return LocalRoles().learner(config, prepared)
        return RayLearners(config)

    def backend(self, config: RunConfig, prepared: Prepared, log: EventSink) -> Backend:
        """See `Roles`."""
        return ray_samplers(config, log)

    def loggers(self, run: str) -> Sequence[RunLogger]:
        """See `Roles`; the metrics agent of each node of the cluster."""
        return (PrometheusLogger(run),)


def gauge_name(tag: str) -> str:
    """The name of a metric's gauge.

    >>> gauge_name("dev/all/loss")
    'rss_rl_dev_all_loss'
    """
    return "rss_rl_" + re.sub(r"[^a-zA-Z0-9]", "_", tag)


class PrometheusLogger(RunLogger):
    """The newest value of every scalar of a run, as gauges with the tag `run`.

    Args:
        run: value of the tag `run`, such as the name of the run directory.
    """

    def __init__(self, run: str) -> None:
        self._run = {"run": run}
        self._gauges: dict[str, Gauge] = {}

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        """See `RunLogger`."""
        for tag, value in {**values, "update": step}.items():
            if tag not in self._gauges:
                self._gauges[tag] = Gauge(gauge_name(tag), _description(tag), ("run",))
            self._gauges[tag].set(value, self._run)


def _description(tag: str) -> str:
    """The meaning of a metric, in ASCII: Ray accepts nothing else.

    >>> _description("train/loss")
    'supervised loss of the classifier, without L2 [nats, or score2]'
    """
    metric = known_metric(tag)
    text = "updates done" if metric is None else f"{metric.meaning} [{metric.unit}]"
    return unicodedata.normalize("NFKD", text).encode("ascii", "replace").decode()
