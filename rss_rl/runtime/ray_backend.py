"""Ray actors as samplers: jobs are idempotent, so a lost one is simply given to another actor.

The pool is elastic. It asks for `sampler.actors` actors and works with those that the cluster has
room for; one that dies or hangs is replaced, and joins again whenever it can be placed. Samplers
are placed one by one and not as a placement group, which would be had as a whole or not at all.
"""

from __future__ import annotations

__all__ = ["RayBackend", "last_line"]

import os
import signal
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import GetTimeoutError, RayActorError, RayError, RayTaskError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from rss_rl.config import SamplerConfig
from rss_rl.errors import LearnerError, RssError, SamplerError
from rss_rl.runtime.backend import BackendStats, Delivery
from rss_rl.runtime.event_log import NO_LOG, EventSink
from rss_rl.runtime.home import Home
from rss_rl.runtime.rollouts import SampleJob
from rss_rl.runtime.snapshot import Snapshot, StoredSnapshot

_FAILURE_WINDOW = 100
_STATS_EVERY_S = 5.0
_START_POLL_S = 0.2


@dataclass
class _Flight:
    """A job that a sampler has; its time is counted from when it was the sampler's oldest."""

    job: SampleJob
    began: float


@dataclass
class _Place:
    """A sampler, or the room for one.

    starting  the answer to wait for before it is given work; None once it came
    since     when the actor was asked for
    done      jobs that the samplers of this place finished; failures: its values at each failure
    """

    number: int
    actor: Any
    starting: Any
    since: float
    home: Home | None = None
    flights: dict[Any, _Flight] = field(default_factory=dict)
    done: int = 0
    failures: deque[int] = field(default_factory=deque)

    def __str__(self) -> str:
        return f"sampler {self.number}" + (f" ({self.home})" if self.home else "")


class RayBackend:
    """A pool of sampler actors.

    Args:
        config: of the samplers.
        spawn: starts an actor and returns its handle. It has `home() -> Home` and
            `sample(job, version, [weights]) -> (pyarrow.RecordBatch, seconds)`, and no restarts of
            Ray's own: an actor that Ray restarts is silently empty.
        log: told which samplers come and go, and why.

    Raises:
        SamplerError: no sampler can be started; its own error is the cause.
    """

    def __init__(
        self,
        config: SamplerConfig,
        spawn: Callable[[int], Any],
        log: EventSink = NO_LOG,
    ) -> None:
        self._config, self._spawn, self._log = config, spawn, log
        self._waiting: deque[SampleJob] = deque()
        self._flying: dict[Any, _Place] = {}  # in the order of submission
        self._version = -1
        self._weights: list[Any] = []
        self._stored = False  # by a learner actor, which may take them with it
        self._stats_at = 0.0
        self._gauges: dict[str, float] = {}
        self.restarts = 0
        self._places: list[_Place] = []
        try:
            for number in range(config.actors):
                actor = spawn(number)
                place = _Place(number, actor, actor.home.remote(), time.monotonic())
                self._places.append(place)
            while not self._live():
                self.collect(_START_POLL_S)
        except BaseException:
            self.close()
            raise

    def _live(self) -> list[_Place]:
        return [place for place in self._places if place.starting is None]

    def publish(self, snapshot: Snapshot | StoredSnapshot) -> None:
        """See `Backend`; one copy for all, in the object store."""
        # The reference before this one stays alive through the calls that were given it.
        self._stored = isinstance(snapshot, StoredSnapshot)
        if isinstance(snapshot, StoredSnapshot):
            reference = snapshot.reference
        else:
            reference = ray.put(snapshot.weights)
        self._version, self._weights = snapshot.version, [reference]

    def room(self) -> int:
        """See `Backend`."""
        slots = self._config.in_flight * max(1, len(self._live()))
        return max(0, slots - len(self._flying) - len(self._waiting))

    def submit(self, job: SampleJob) -> None:
        """See `Backend`."""
        self._waiting.append(job)
        self._dispatch()

    def _dispatch(self) -> None:
        """Give waiting jobs to the samplers that have least to do."""
        while self._waiting:
            place = min(self._live(), key=lambda place: len(place.flights), default=None)
            if place is None or len(place.flights) >= self._config.in_flight:
                return
            job = self._waiting.popleft()
            call = place.actor.sample.remote(job, self._version, self._weights)
            place.flights[call] = _Flight(job, time.monotonic())
            self._flying[call] = place

    def collect(self, timeout_s: float) -> list[Delivery]:
        """See `Backend`."""
        self._dispatch()
        starting = {p.starting: p for p in self._places if p.starting is not None}
        calls = [*self._flying, *starting]
        ray.wait(calls, num_returns=1, timeout=timeout_s)
        # Of several ready ones the call above picks any; this one keeps their order.
        ready, _ = ray.wait(calls, num_returns=len(calls), timeout=0)
        deliveries = []
        for call in ready:
            if call in starting:
                self._welcome(starting[call])
            elif call in self._flying:  # else: its sampler failed a moment ago
                deliveries.extend(self._receive(call))
        self._check_overdue()
        self._dispatch()
        return deliveries

    def _welcome(self, place: _Place) -> None:
        """A sampler has started, or failed to."""
        try:
            place.home = ray.get(place.starting, timeout=self._config.timeout_s)
        except (RayActorError, RayTaskError) as error:
            if not self._live() and not place.failures:
                raise SamplerError(f"a sampler could not be started: {last_line(error)}") from error
            self._fail(place, f"could not be started: {last_line(error)}")
            return
        place.starting = None
        event = "sampler_replaced" if place.failures else "sampler_started"
        self._log.write(event, actor=f"sampler {place.number}", node=str(place.home))

    def _receive(self, call: Any) -> list[Delivery]:
        place = self._flying[call]
        flight = place.flights[call]
        try:
            rollout, busy_s = ray.get(call, timeout=self._config.timeout_s)
        except RayTaskError as error:
            if not isinstance(error.cause, RayError):
                raise _task_error(error, flight.job, place) from error
            if self._stored and not isinstance(error.cause, GetTimeoutError):
                raise LearnerError(
                    f"the weights of version {self._version} are lost: {last_line(error)}",
                    where=str(place),
                ) from error
            self._fail(place, f"could not fetch the weights: {last_line(error)}")
            return []
        except RayError as error:  # dead, unreachable, or its answer was lost
            self._fail(place, f"died: {last_line(error)}")
            return []
        del self._flying[call], place.flights[call]
        place.done += 1
        for waiting in place.flights.values():
            waiting.began = time.monotonic()
        return [Delivery(flight.job, rollout, busy_s)]

    def _check_overdue(self) -> None:
        now, limit = time.monotonic(), self._config.timeout_s
        for place in self._live():
            oldest = next(iter(place.flights.values()), None)
            if oldest is not None and now - oldest.began > limit:
                self._fail(place, f"gave no answer for {limit:.0f} s", hung=True)
        limit = self._config.start_timeout_s
        if not self._live() and all(now - place.since > limit for place in self._places):
            raise SamplerError(
                f"none of {len(self._places)} samplers started within {limit:.0f} s;"
                f" {_in_use('CPU'):g} of the cluster's {_total('CPU'):g} CPUs are taken, a sampler"
                f" wants {self._config.threads}",
                remedy="Add nodes, ask for less, or raise sampler.start_timeout_s",
            )

    def _fail(self, place: _Place, what: str, *, hung: bool = False) -> None:
        """Replace a sampler; its jobs go to others, first of all.

        Raises:
            SamplerError: it happens too often at this place.
        """
        self._waiting.extendleft(reversed([flight.job for flight in place.flights.values()]))
        for call in place.flights:
            del self._flying[call]
        self.restarts += 1
        place.failures.append(place.done)
        while place.failures[0] < place.done - _FAILURE_WINDOW:
            place.failures.popleft()
        event = "sampler_hung" if hung else "sampler_died"
        node = None if place.home is None else str(place.home)
        self._log.write(event, "warning", actor=f"sampler {place.number}", node=node, cause=what)
        if len(place.failures) > self._config.max_restarts:
            raise SamplerError(
                f"{place} {what}; that was failure {len(place.failures)} within"
                f" {_FAILURE_WINDOW} of its shards",
                remedy="Look for a lack of memory on that host, or raise sampler.max_restarts",
            )
        ray.kill(place.actor)
        if hung and place.home is not None:
            _end_on(place.home)
        actor = self._spawn(place.number)
        place.actor, place.starting = actor, actor.home.remote()
        place.since, place.home, place.flights = time.monotonic(), None, {}

    def stats(self) -> BackendStats:
        """See `Backend`."""
        if time.monotonic() - self._stats_at > _STATS_EVERY_S:
            self._stats_at = time.monotonic()
            self._gauges = {"object_store/bytes": _in_use("object_store_memory")}
        return BackendStats(len(self._live()), self.restarts, self._gauges)

    def close(self) -> None:
        """See `Backend`."""
        for place in self._places:
            ray.kill(place.actor)
        self._places, self._weights = [], []
        self._flying.clear()
        self._waiting.clear()


def _end_on(home: Home) -> None:
    """End a process on its own node: one that is stopped does not hear Ray's request."""
    there = NodeAffinitySchedulingStrategy(home.node, soft=False)
    _end_process.options(scheduling_strategy=there).remote(home.pid)


@ray.remote(num_cpus=0, max_retries=0)
def _end_process(pid: int) -> None:
    """Kill a worker of Ray's on this node."""
    try:
        if Path(f"/proc/{pid}/cmdline").read_bytes().startswith(b"ray::"):
            os.kill(pid, signal.SIGKILL)
    except (FileNotFoundError, ProcessLookupError):
        return


def _total(resource: str) -> float:
    everything: dict[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]
    return everything.get(resource, 0.0)


def _in_use(resource: str) -> float:
    free: dict[str, float] = ray.available_resources()  # type: ignore[no-untyped-call]
    return _total(resource) - free.get(resource, 0.0)


def last_line(error: Exception) -> str:
    """The last line of Ray's message, which names the original exception."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__


def _task_error(error: RayTaskError, job: SampleJob, place: _Place) -> RssError:
    """The sampler's own error where it is one of ours, else a report of the bug; says where."""
    where = f"{place}, update {job.update + 1}, shard {job.shard}"
    cause = error.cause
    if isinstance(cause, RssError):
        found = f"{where}: {cause.where}" if cause.where else where
        return type(cause)(cause.what, where=found, remedy=cause.remedy)
    return SamplerError(f"a sampler raised an exception: {last_line(error)}", where=where)
