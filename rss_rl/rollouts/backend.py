"""Where rollouts are computed: in this process, or by Ray actors. Both run the same `Sampler`."""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from rss_rl.rollouts.rollout import Rollout, SampleJob
from rss_rl.rollouts.sampler import Sampler
from rss_rl.rollouts.snapshot import Delta, Publications, Snapshot, StoredSnapshot


@dataclass(frozen=True)
class Delivery:
    """A finished job: its rollout, and the seconds a sampler was busy with it."""

    job: SampleJob
    rollout: Rollout
    busy_s: float


@dataclass(frozen=True)
class BackendStats:
    """How the samplers do.

    samplers  alive now
    restarts  died or hung and were replaced, so far
    scalars   further metrics by tag
    """

    samplers: int
    restarts: int
    scalars: dict[str, float] = field(default_factory=dict)


class Backend(Protocol):
    """Samplers: they take snapshots and jobs, and give each job's rollout exactly once."""

    def room(self) -> int:
        """How many jobs may be submitted now, so that no sampler's queue grows beyond its bound."""

    def publish(self, snapshot: Snapshot | StoredSnapshot) -> None:
        """Let the jobs that are submitted from now on be sampled with this snapshot.

        The first one holds every part, each later one what changed since the one before.
        """

    def submit(self, jobs: Sequence[SampleJob]) -> None:
        """Hand over jobs; one that is lost and given out again is sampled with the newest."""

    def collect(self, timeout_s: float) -> list[Delivery]:
        """What was finished since the last call, in the order of submission.

        Waits for one job at most `timeout_s`; empty when none was finished by then.

        Raises:
            SamplerError: samplers keep failing; names the last one, where it ran, and why.
            RssError: raised by the code within a sampler.
        """

    def stats(self) -> BackendStats:
        """How the samplers do."""

    def close(self) -> None:
        """Release processes and memory; may be called twice."""


class LocalBackend:
    """One sampler in this process; no Ray.

    A job is sampled when it is collected, with the snapshot it was submitted with: so a run that
    lets samplers run ahead has the same policy lag here as with samplers of its own, and repeats
    to the bit.
    """

    def __init__(self, sampler: Sampler) -> None:
        self._sampler = sampler
        self._published: Publications[Delta] = Publications()
        self._version = -1
        self._given = 0  # publications whose deltas went with the jobs so far
        self._waiting: deque[tuple[SampleJob, Snapshot]] = deque()

    def publish(self, snapshot: Snapshot | StoredSnapshot) -> None:
        """See `Backend`; weights must be of this process."""
        if not isinstance(snapshot, Snapshot):
            raise TypeError("weights in Ray's object store, for a sampler that does without Ray")
        self._published.add(snapshot.deltas)
        self._version = snapshot.version

    def room(self) -> int:
        """See `Backend`; the queue is bounded by the policy lag alone."""
        return sys.maxsize

    def submit(self, jobs: Sequence[SampleJob]) -> None:
        """See `Backend`."""
        if not self._published.count:
            raise ValueError("a job cannot be sampled before the first snapshot")
        lacking = tuple(self._published.after(self._given))
        self._given = self._published.count
        # Of several jobs the first loads what all of them lack.
        self._waiting.append((jobs[0], Snapshot(self._version, lacking)))
        self._waiting.extend((job, Snapshot(self._version, ())) for job in jobs[1:])

    def collect(self, timeout_s: float) -> list[Delivery]:
        """See `Backend`."""
        if not self._waiting:
            return []
        job, snapshot = self._waiting.popleft()
        started = time.perf_counter()
        self._sampler.load(snapshot)
        rollout = self._sampler.sample(job)
        return [Delivery(job, rollout, time.perf_counter() - started)]

    def stats(self) -> BackendStats:
        """See `Backend`."""
        return BackendStats(samplers=1, restarts=0)

    def close(self) -> None:
        """See `Backend`."""
        self._waiting.clear()
