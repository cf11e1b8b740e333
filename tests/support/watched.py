"""Ray roles whose samplers and learners a test can reach while a run trains."""

from __future__ import annotations

from contextlib import AbstractContextManager

from rss_rl.cluster.learner_actors import RayLearners
from rss_rl.cluster.roles import RayRoles, ray_samplers
from rss_rl.cluster.sampler_pool import RayBackend
from rss_rl.config import RunConfig
from rss_rl.data.store import Prepared
from rss_rl.logs.events import EventSink
from rss_rl.training.learner import Learner


class WatchedRoles(RayRoles):
    """Remembers what it made last."""

    def __init__(self) -> None:
        self.samplers: RayBackend | None = None
        self.learners: RayLearners | None = None

    def learner(self, config: RunConfig, prepared: Prepared) -> AbstractContextManager[Learner]:
        made = super().learner(config, prepared)
        self.learners = made if isinstance(made, RayLearners) else None
        return made

    def backend(self, config: RunConfig, prepared: Prepared, log: EventSink) -> RayBackend:
        self.samplers = ray_samplers(config, log)
        return self.samplers
