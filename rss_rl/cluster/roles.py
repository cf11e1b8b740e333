"""The roles of a run on the Ray cluster that this process has joined."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import ray

from rss_rl.cluster.learner_actors import RayLearners
from rss_rl.cluster.sampler_actor import MAIL, SamplerActor
from rss_rl.cluster.sampler_pool import RayBackend
from rss_rl.config import RunConfig
from rss_rl.data.store import Prepared
from rss_rl.logs.events import NO_LOG, EventSink
from rss_rl.rollouts.backend import Backend
from rss_rl.training.attempts import LocalRoles
from rss_rl.training.learner import Learner


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


def ray_samplers(config: RunConfig, log: EventSink = NO_LOG) -> RayBackend:
    """The samplers of a run, on the cluster that this process has joined.

    Args:
        config: of the run; its data must be readable from every node.
        log: see `RayBackend`.

    Raises:
        SamplerError: none can be started.
    """
    sampler, tree = config.sampler, config.model_dump(mode="json")
    options: dict[str, Any] = {
        "num_cpus": sampler.threads,
        "num_gpus": sampler.gpus,
        "resources": dict(sampler.resources),
        "scheduling_strategy": "SPREAD",
        "concurrency_groups": {MAIL: 1},
        "max_restarts": 0,
        "max_task_retries": 0,
    }
    remote = ray.remote(**options)(SamplerActor)
    return RayBackend(sampler, lambda _: remote.remote(tree), log)
