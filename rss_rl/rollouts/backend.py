"""Backends that run a `Sampler`: in this process, or in Ray actors (`rss_rl.cluster`)."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from rss_rl.rollouts.rollout import Job, Rollout
from rss_rl.rollouts.sampler import Sampler
from rss_rl.rollouts.snapshot import Snapshot, StoredSnapshot

Done = tuple[Job, Rollout, float]
"""A finished job, its rollout, and the seconds that a sampler was busy with it."""


class BackendStats(NamedTuple):
    """The state of the samplers: how many are alive, and were replaced as they died or hung."""

    samplers: int
    restarts: int


class Backend(Protocol):
    """Samplers: they take snapshots and jobs, and return each job's rollout exactly once."""

    def publish(self, snapshot: Snapshot | StoredSnapshot) -> None:
        """Use this snapshot for jobs submitted from now on, or already for waiting ones.

        The first one, and the first one after `forget`, hold every part, each later one the changes
        since the previous one. Its weights may change once this returns.
        """

    def submit(self, jobs: Sequence[Job]) -> None:
        """Submit jobs; one that is lost is sampled again."""

    def forget(self) -> None:
        """Drop all jobs: their rollouts are not returned."""

    def collect(self, timeout_s: float) -> list[Done]:
        """The jobs finished since the last call.

        Waits at most `timeout_s` for one job; empty if none has finished by then.

        Raises:
            SamplerError: samplers keep failing; names the last one, where it ran, and why.
            RssError: raised by the code within a sampler.
        """

    def stats(self) -> BackendStats:
        """The state of the samplers."""

    def close(self) -> None:
        """Release processes and memory; may be called twice."""


class LocalBackend:
    """One sampler in this process, without Ray.

    A job is sampled when it is collected, with the newest snapshot published before it was
    submitted: the policy lag is exactly `max_policy_lag`, and a run is deterministic.
    """

    def __init__(self, sampler: Sampler) -> None:
        self._sampler = sampler
        self._waiting: deque[Job | Snapshot] = deque()  # in the order of their arrival

    def publish(self, snapshot: Snapshot | StoredSnapshot) -> None:
        """See `Backend`; the weights must be in this process."""
        if not isinstance(snapshot, Snapshot):
            raise TypeError("a local sampler cannot load weights from Ray's object store")
        self._waiting.append(snapshot.copied())

    def submit(self, jobs: Sequence[Job]) -> None:
        """See `Backend`."""
        self._waiting.extend(jobs)

    def forget(self) -> None:
        """See `Backend`."""
        self._waiting.clear()

    def collect(self, timeout_s: float) -> list[Done]:
        """See `Backend`."""
        started = time.perf_counter()
        while self._waiting:
            job = self._waiting.popleft()
            if isinstance(job, Job):
                return [(job, self._sampler.sample(job), time.perf_counter() - started)]
            self._sampler.load(job)
        return []

    def stats(self) -> BackendStats:
        """See `Backend`."""
        return BackendStats(samplers=1, restarts=0)

    def close(self) -> None:
        """See `Backend`."""
        self._waiting.clear()
