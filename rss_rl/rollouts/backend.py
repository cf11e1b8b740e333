"""Backends that run a `Sampler`: in this process, or in Ray actors (`rss_rl.cluster`)."""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from rss_rl.rollouts.rollout import Job, Rollout
from rss_rl.rollouts.sampler import Sampler
from rss_rl.rollouts.snapshot import Delta, Publications, Snapshot, StoredSnapshot

Done = tuple[Job, Rollout, float]
"""A finished job, its rollout, and the seconds that a sampler was busy with it."""


@dataclass(frozen=True)
class BackendStats:
    """The state of the samplers.

    samplers  number alive
    restarts  number replaced so far, because they died or hung
    scalars   further metrics by tag
    """

    samplers: int
    restarts: int
    scalars: dict[str, float] = field(default_factory=dict)


class Backend(Protocol):
    """Samplers: they take snapshots and jobs, and return each job's rollout exactly once."""

    def room(self) -> int:
        """How many jobs may be submitted now without exceeding the bound of a sampler's queue."""

    def publish(self, snapshot: Snapshot | StoredSnapshot) -> None:
        """Use this snapshot for jobs submitted from now on.

        The first one holds every part, each later one the changes since the previous one. Its
        weights may change once this returns.
        """

    def submit(self, jobs: Sequence[Job]) -> None:
        """Submit jobs; one that is lost and resubmitted is sampled with the newest snapshot."""

    def collect(self, timeout_s: float) -> list[Done]:
        """The jobs finished since the last call, in the order of submission.

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

    A job is sampled when it is collected, with the snapshot it was submitted with: the policy lag
    is exactly `max_policy_lag`, and a run is deterministic.
    """

    def __init__(self, sampler: Sampler) -> None:
        self._sampler = sampler
        self._published: Publications[Delta] = Publications()
        self._version = -1
        self._charged: tuple[float, float] | None = None
        self._given = 0  # publications whose deltas were attached to jobs so far
        self._waiting: deque[tuple[Job, Snapshot]] = deque()

    def publish(self, snapshot: Snapshot | StoredSnapshot) -> None:
        """See `Backend`; the weights must be in this process."""
        if not isinstance(snapshot, Snapshot):
            raise TypeError("a local sampler cannot load weights from Ray's object store")
        self._published.add([delta.copied() for delta in snapshot.deltas])
        self._version, self._charged = snapshot.version, snapshot.charged

    def room(self) -> int:
        """See `Backend`; the queue is bounded by the policy lag alone."""
        return sys.maxsize

    def submit(self, jobs: Sequence[Job]) -> None:
        """See `Backend`."""
        if not self._published.count:
            raise ValueError("a job cannot be sampled before the first snapshot")
        lacking = tuple(self._published.after(self._given))
        self._given = self._published.count
        # The missing deltas go with the first job only.
        version, charged = self._version, self._charged
        self._waiting.append((jobs[0], Snapshot(version, lacking, charged)))
        self._waiting.extend((job, Snapshot(version, (), charged)) for job in jobs[1:])

    def collect(self, timeout_s: float) -> list[Done]:
        """See `Backend`."""
        if not self._waiting:
            return []
        job, snapshot = self._waiting.popleft()
        started = time.perf_counter()
        self._sampler.load(snapshot)
        rollout = self._sampler.sample(job)
        return [(job, rollout, time.perf_counter() - started)]

    def stats(self) -> BackendStats:
        """See `Backend`."""
        return BackendStats(samplers=1, restarts=0)

    def close(self) -> None:
        """See `Backend`."""
        self._waiting.clear()
