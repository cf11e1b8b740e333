"""A sampler that only sleeps, for simulating clusters larger than the machine."""

from __future__ import annotations

import time
from typing import Any

import ray

from rss_rl.cluster.actors import ActorProcess, this_process
from rss_rl.cluster.sampler_actor import MAIL, Mailbox
from rss_rl.rollouts.rollout import Job, Rollout
from rss_rl.rollouts.snapshot import StoredSnapshot


class FakeSampler:
    """Sleeps `seconds` for a job, fetches weights as a real one does, and sends a real rollout.

    Args:
        pattern: a rollout of the size that real ones have.
    """

    def __init__(self, seconds: float, pattern: Rollout) -> None:
        self._seconds, self._pattern = seconds, pattern
        self._mailbox = Mailbox(60.0)

    def process(self) -> ActorProcess:
        return this_process()

    @ray.method(concurrency_group=MAIL)
    def publish(self, number: int, snapshot: StoredSnapshot) -> None:
        self._mailbox.put(number, snapshot)

    def sample(self, job: list[Any], number: int) -> tuple[bytes, float]:
        started = time.perf_counter()
        snapshot = self._mailbox.take(number)
        for delta in snapshot.deltas:
            delta.weights.sum()  # a real one reads every number once, into its modules
        time.sleep(self._seconds)
        rollout = self._rollout(Job.unpacked(job), snapshot.version)
        return rollout.to_bytes(), time.perf_counter() - started

    def _rollout(self, job: Job, version: int) -> Rollout:
        count, first = len(job.rows), ("rows", "thresholded/")
        arrays = {
            name: values[:count] if name in first else values[:, :count]
            for name, values in self._pattern.arrays().items()
        }
        return Rollout.from_arrays(arrays | {"rows": job.rows}, version)
