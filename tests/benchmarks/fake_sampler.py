"""A sampler that only sleeps, for simulating clusters larger than the machine: needs no torch."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import numpy as np

from rss_rl.cluster.actors import ActorProcess, this_process
from rss_rl.cluster.bundles import fetched
from rss_rl.rollouts.rollout import Job, Rollout


class FakeSampler:
    """Sleeps `seconds` for a job, fetches weights as a real one does, and sends a real rollout.

    Args:
        pattern: a rollout of the size that real ones have.
    """

    def __init__(self, seconds: float, pattern: Rollout) -> None:
        self._seconds, self._pattern = seconds, pattern

    def process(self) -> ActorProcess:
        return this_process()

    def sample(self, jobs: list[list[Any]], version: int, deltas: list[Any], _: Any) -> list[Any]:
        started = time.perf_counter()
        for delta in fetched(deltas, 60.0):
            delta.weights.sum()  # a real one reads every number once, into its modules
        time.sleep(self._seconds * len(jobs))
        done = [self._rollout(Job.unpacked(job), version).to_bytes() for job in jobs]
        return [[rollout, (time.perf_counter() - started) / len(jobs)] for rollout in done]

    def _rollout(self, job: Job, version: int) -> Rollout:
        widths = [selection.shape[-1] for selection in self._pattern.selections]
        part = self._pattern.of(np.arange(len(job.rows)), widths)
        return replace(part, version=version, rows=job.rows)
