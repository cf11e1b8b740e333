"""Who computes rollouts: this process, or Ray actors. Both run the same `Sampler`."""

from __future__ import annotations

__all__ = ["Backend", "LocalBackend"]

from collections.abc import Sequence
from typing import Protocol

import pyarrow as pa

from rss_rl.runtime.rollouts import SampleJob
from rss_rl.runtime.sampler import Sampler
from rss_rl.runtime.snapshot import Snapshot


class Backend(Protocol):
    """A source of rollouts."""

    @property
    def restarts(self) -> int:
        """Samplers that died or hung and were replaced, so far."""

    def sample(self, jobs: Sequence[SampleJob], snapshot: Snapshot) -> list[pa.RecordBatch]:
        """The rollouts of the jobs under the snapshot, in the order of the jobs.

        Raises:
            SamplerError: when samplers keep failing.
        """

    def close(self) -> None:
        """Release processes and memory; may be called twice."""


class LocalBackend:
    """One sampler in this process; no Ray."""

    restarts = 0

    def __init__(self, sampler: Sampler) -> None:
        self._sampler = sampler

    def sample(self, jobs: Sequence[SampleJob], snapshot: Snapshot) -> list[pa.RecordBatch]:
        """See `Backend`."""
        if self._sampler.version != snapshot.version:
            self._sampler.load(snapshot)
        return [self._sampler.sample(job) for job in jobs]

    def close(self) -> None:
        """See `Backend`; there is nothing to release."""
