"""Keeps samplers supplied with jobs for upcoming updates, and returns rollouts in order.

Update u always learns from batch u, so the data order does not depend on timing, checkpoints do not
record jobs in flight, and no example of an epoch is lost or used twice. Update u begins with
version u of the policy; a rollout of version v used in update u has policy lag u - v. It is bounded
by admission: jobs of update w are given while w - (published version) <= max_policy_lag. With
max_policy_lag = 0 training is synchronous.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence

from rss_rl.config import SamplerConfig
from rss_rl.rollouts.backend import Backend
from rss_rl.rollouts.rollout import Job, Rollout, join_rollouts
from rss_rl.rollouts.snapshot import Snapshot, StoredSnapshot

_POLL_S = 1.0
_IDLE_WINDOW = 32
"""Updates that the idle share is averaged over: a job's time is known only when it ends."""


class RolloutPipeline:
    """Between the samplers and the learner.

    Args:
        backend: called before the first job is submitted, so that a run without sampling starts no
            samplers.

    `published` is the version of the newest snapshot; None before the first.
    """

    def __init__(self, backend: Callable[[], Backend], config: SamplerConfig) -> None:
        self._make_backend = backend
        self._backend: Backend | None = None
        self._config = config
        self.published: int | None = None
        self._arrived: dict[int, list[Rollout | None]] = {}  # of each update given, by shard
        self._next = 0  # first update whose jobs were not given yet
        self._busy: deque[tuple[float, float]] = deque(maxlen=_IDLE_WINDOW)
        self._busy_s, self._since = 0.0, 0.0

    def start(self) -> Backend:
        """The samplers, started if necessary.

        Raises:
            SamplerError: none can be started.
        """
        if self._backend is None:
            self._backend = self._make_backend()
            self._measure_anew()
        return self._backend

    def _measure_anew(self) -> None:
        """Reset the measurement, so that time before, such as a warm-up, does not count as idle."""
        self._busy.clear()
        self._busy_s, self._since = 0.0, time.perf_counter()

    def publish(self, snapshot: Snapshot | StoredSnapshot) -> None:
        """See `Backend.publish`."""
        self.start().publish(snapshot)
        self.published = snapshot.version

    def admitted(self, update: int) -> range:
        """Updates from `update` on that may learn from rollouts of the published policy, and have
        no jobs yet.
        """
        assert self.published is not None
        newest = self.published + self._config.max_policy_lag
        return range(max(self._next, update), newest + 1)

    def give(self, update: int, jobs: Sequence[Job]) -> None:
        """Submit all jobs of an update."""
        self._next = update + 1
        self._arrived[update] = [None] * len(jobs)
        self.start().submit(jobs)

    def take(self, update: int) -> tuple[Rollout, dict[str, float]]:
        """The rollout of an update, waiting for all its shards, and metrics by tag.

        Raises:
            SamplerError: samplers keep failing.
            RssError: raised by the code within a sampler.
        """
        started = time.perf_counter()
        backend = self.start()
        while any(shard is None for shard in self._arrived[update]):
            for job, shard, busy_s in backend.collect(_POLL_S):
                self._busy_s += busy_s
                self._arrived[job.update][job.shard] = shard
        shards = [shard for shard in self._arrived.pop(update) if shard is not None]
        waited = time.perf_counter() - started
        scalars = {"time/sample_s": waited} | self._scalars(update, shards, backend)
        return join_rollouts(shards), scalars

    def _scalars(
        self, update: int, rollouts: Sequence[Rollout], backend: Backend
    ) -> dict[str, float]:
        lags = [update - rollout.version for rollout in rollouts]
        stats = backend.stats()
        now = time.perf_counter()
        self._busy.append((self._busy_s, (now - self._since) * max(stats.samplers, 1)))
        busy_s, self._busy_s, self._since = self._busy_s, 0.0, now
        busy, possible = (sum(part) for part in zip(*self._busy, strict=True))
        return {
            "policy/version": min(rollout.version for rollout in rollouts),
            "policy/lag_min": min(lags),
            "policy/lag": sum(lags) / len(lags),
            "policy/lag_max": max(lags),
            "pipeline/in_flight": sum(shards.count(None) for shards in self._arrived.values()),
            "sampler/busy_s": busy_s,
            "sampler/alive": stats.samplers,
            "sampler/restarts": stats.restarts,
            "sampler/idle_share": max(0.0, 1.0 - busy / possible),
        }

    def forget(self) -> None:
        """Drop all jobs and rollouts, because the phase or the weights have changed."""
        if self._backend is not None:
            self._backend.forget()
        self._arrived.clear()
        self._next = 0
        self.published = None
        self._measure_anew()

    def close(self) -> None:
        """Release the samplers; what was in flight is lost."""
        self.forget()
        if self._backend is not None:
            self._backend.close()
            self._backend = None
