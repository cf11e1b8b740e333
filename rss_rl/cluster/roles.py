"""The roles of a run on the Ray cluster that this process has joined."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager

from rss_rl.cluster.learner_actors import RayLearners
from rss_rl.cluster.prometheus import PrometheusSink
from rss_rl.cluster.sampler_actor import ray_samplers
from rss_rl.config import RunConfig
from rss_rl.data.store import Prepared
from rss_rl.logs.events import EventSink
from rss_rl.logs.metrics import ScalarSink
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

    def sinks(self, run: str) -> Sequence[ScalarSink]:
        """See `Roles`; the metrics agent of each node of the cluster."""
        return (PrometheusSink(run),)
