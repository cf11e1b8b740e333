"""A backend whose rollouts are ever staler."""

from __future__ import annotations

from rss_rl.config import RunConfig
from rss_rl.data.store import Prepared
from rss_rl.reading.models import build_prepared_models
from rss_rl.rollouts.backend import LocalBackend
from rss_rl.rollouts.sampler import Sampler
from rss_rl.rollouts.snapshot import Snapshot


class FirstSnapshot(LocalBackend):
    """A backend that keeps sampling with the first snapshot it was given."""

    def __init__(self, config: RunConfig, prepared: Prepared) -> None:
        models = build_prepared_models(config, prepared)
        super().__init__(Sampler(config, models, prepared.split("train")))
        self._first = True

    def publish(self, snapshot: Snapshot) -> None:
        if self._first:
            super().publish(snapshot)
        self._first = False
