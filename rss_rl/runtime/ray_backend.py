"""Ray actors as samplers: jobs are idempotent, so a lost one is simply given to another actor."""

from __future__ import annotations

__all__ = ["RayBackend"]

import os
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import ray
from ray.exceptions import GetTimeoutError, RayActorError, RayError, RayTaskError

from rss_rl.config import RunConfig
from rss_rl.data.store import open_prepared
from rss_rl.errors import RssError, SamplerError
from rss_rl.runtime.rollouts import SampleJob
from rss_rl.runtime.sampler import Sampler
from rss_rl.runtime.snapshot import Snapshot, build_prepared_models

_POLL_S = 1.0
_FAILURE_WINDOW = 100


class _SamplerActor:
    """A sampler in a process of its own; it pulls a snapshot when the version it holds differs."""

    def __init__(self, config: dict[str, Any], prepared: str) -> None:
        run = RunConfig.model_validate(config)
        data = open_prepared(prepared)
        self._sampler = Sampler(run, build_prepared_models(run, data), data.split("train"))

    def ready(self) -> int:
        """The process id, once everything is loaded."""
        return os.getpid()

    def sample(self, job: SampleJob, version: int, weights: list[Any]) -> pa.RecordBatch:
        """A rollout; `weights` is a list so that Ray does not fetch the reference needlessly."""
        if self._sampler.version != version:
            self._sampler.load(Snapshot(version, ray.get(weights[0], timeout=60)))
        return self._sampler.sample(job)


@dataclass
class _InFlight:
    """A job given to an actor."""

    place: int
    number: int
    deadline: float


class RayBackend:
    """A fixed number of sampler actors; one that dies or hangs is replaced.

    Args:
        config: of the run. prepared: the dataset, a path or URI that every node can read.
        address: of a running cluster, or None to use the one of the environment or start one.

    Raises:
        SamplerError: when a sampler cannot be built, with its own error as the cause.
    """

    def __init__(self, config: RunConfig, prepared: Path | str, address: str | None = None) -> None:
        self._config = config
        self._prepared = str(prepared)
        self._started_ray = _connect(config, address)
        self._failures: deque[int] = deque()
        self._update = 0
        self.restarts = 0
        self._actors = [self._start() for _ in range(config.sampler.actors)]
        self._preflight()

    def _start(self) -> Any:
        threads = self._config.sampler.threads
        actor = ray.remote(_SamplerActor).options(num_cpus=threads, max_restarts=0)
        return actor.remote(self._config.model_dump(mode="json"), self._prepared)

    def _preflight(self) -> None:
        """Every sampler answers once, so that a broken one shows its own error at the start."""
        try:
            ray.get(
                [a.ready.remote() for a in self._actors], timeout=self._config.sampler.timeout_s
            )
        except GetTimeoutError as error:
            self.close()
            raise SamplerError(
                f"not all {self._config.sampler.actors} samplers started within"
                f" {self._config.sampler.timeout_s:.0f} s",
                remedy="Ask for fewer sampler.actors, or raise sampler.timeout_s",
            ) from error
        except (RayActorError, RayTaskError) as error:
            self.close()
            raise SamplerError(f"a sampler could not be started: {_cause(error)}") from error

    def sample(self, jobs: Sequence[SampleJob], snapshot: Snapshot) -> list[pa.RecordBatch]:
        """See `Backend`."""
        self._update += 1
        weights = [ray.put(snapshot.weights)]
        waiting = deque(range(len(jobs)))
        idle = deque(range(len(self._actors)))
        flying: dict[Any, _InFlight] = {}
        results: dict[int, pa.RecordBatch] = {}
        while len(results) < len(jobs):
            while waiting and idle:
                number, place = waiting.popleft(), idle.popleft()
                call = self._actors[place].sample.remote(jobs[number], snapshot.version, weights)
                deadline = time.monotonic() + self._config.sampler.timeout_s
                flying[call] = _InFlight(place, number, deadline)
            ready, _ = ray.wait(list(flying), num_returns=1, timeout=_POLL_S)
            for call in ready:
                work = flying.pop(call)
                try:
                    results[work.number] = ray.get(call, timeout=self._config.sampler.timeout_s)
                except RayTaskError as error:
                    raise _task_error(error, jobs[work.number]) from error
                except RayError as error:  # dead, unreachable, or its answer was lost
                    ray.kill(self._actors[work.place])
                    self._replace(work.place, f"died: {_cause(error)}")
                    waiting.appendleft(work.number)
                idle.append(work.place)
            self._kill_overdue(flying, waiting, idle)
        return [results[number] for number in range(len(jobs))]

    def _kill_overdue(
        self, flying: dict[Any, _InFlight], waiting: deque[int], idle: deque[int]
    ) -> None:
        now = time.monotonic()
        for call in [call for call, work in flying.items() if work.deadline < now]:
            work = flying.pop(call)
            ray.kill(self._actors[work.place])
            self._replace(work.place, f"gave no answer for {self._config.sampler.timeout_s:.0f} s")
            waiting.appendleft(work.number)
            idle.append(work.place)

    def _replace(self, place: int, what: str) -> None:
        self.restarts += 1
        self._failures.append(self._update)
        while self._failures[0] <= self._update - _FAILURE_WINDOW:
            self._failures.popleft()
        if len(self._failures) > self._config.sampler.max_restarts:
            raise SamplerError(
                f"sampler {place} {what}; {len(self._failures)} samplers failed within"
                f" {_FAILURE_WINDOW} updates",
                remedy="Look for a lack of memory, or raise sampler.max_restarts",
            )
        self._actors[place] = self._start()

    def close(self) -> None:
        """See `Backend`."""
        for actor in self._actors:
            ray.kill(actor)
        self._actors = []
        if self._started_ray and ray.is_initialized():
            ray.shutdown()


def _connect(config: RunConfig, address: str | None) -> bool:
    """Join the cluster, or start a local one; True when it was started here."""
    if ray.is_initialized():
        return False
    if address or "RAY_ADDRESS" in os.environ:
        try:
            ray.init(address=address, log_to_driver=False)
        except (ConnectionError, RayError) as error:
            raise SamplerError(
                f"no Ray cluster answers: {_cause(error)}",
                where=address or os.environ["RAY_ADDRESS"],
                remedy="Start one, or unset RAY_ADDRESS to sample on this machine",
            ) from error
        return True
    cores = max(os.cpu_count() or 1, config.sampler.actors * config.sampler.threads)
    ray.init(num_cpus=cores, include_dashboard=False, log_to_driver=False, configure_logging=False)
    return True


def _cause(error: Exception) -> str:
    """The last line of Ray's message, which names the original exception."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__


def _task_error(error: RayTaskError, job: SampleJob) -> RssError:
    """The sampler's own error where it is one of ours, else a report of the bug."""
    if isinstance(error.cause, RssError):
        return error.cause
    return SamplerError(
        f"a sampler raised an exception: {_cause(error)}",
        where=f"update {job.update}, shard {job.shard}",
    )
