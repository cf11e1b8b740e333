"""A pool of Ray actors as samplers: jobs are idempotent, so a lost one is resubmitted elsewhere.

The pool is elastic. It requests `sampler.actors` actors and works with those that the cluster has
room for; one that dies or hangs is replaced as soon as a new one can be placed. Samplers are placed
one by one, not as a placement group, which would be all or nothing.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import ray
from ray.exceptions import GetTimeoutError, RayError, RayTaskError

from rss_rl.cluster.actors import ActorProcess, kill_process, last_line
from rss_rl.config import SamplerConfig
from rss_rl.errors import DataError, LearnersLostError, RssError, SamplerError, StorageError
from rss_rl.logs.events import NO_LOG, EventSink
from rss_rl.rollouts.backend import BackendStats, Done
from rss_rl.rollouts.rollout import Job, Rollout
from rss_rl.rollouts.snapshot import (
    Delta,
    Publications,
    Snapshot,
    StoredDelta,
    StoredSnapshot,
    bundles,
)

_STATS_EVERY_S = 5.0
_POLL_S = 0.2
_FAILURE_WINDOW = 100
_LONGEST_PAUSE_S = 60.0


@dataclass
class _Assigned:
    """The jobs of one call to a sampler; `since` when the call has been the sampler's oldest."""

    jobs: list[Job]
    since: float


@dataclass
class _Slot:
    """A sampler of the pool, or the wait for one.

    number    of the slot; spawn: starts an actor for it
    actor     None while the slot pauses after a failed start
    starting  the call that returns when the actor is ready for jobs; None afterwards
    since     when the actor was requested, or when the next one will be
    done      jobs finished by samplers of this slot
    given     publications whose deltas the actor has loaded, or will load with calls under way
    failures  values of `done` at each failure within the last 100 jobs
    """

    number: int
    spawn: Callable[[int], Any]
    actor: Any = None
    starting: Any = None
    since: float = 0.0
    process: ActorProcess | None = None
    calls: dict[Any, _Assigned] = field(default_factory=dict)
    done: int = 0
    given: int = 0
    failures: deque[int] = field(default_factory=deque)

    def __str__(self) -> str:
        return f"sampler {self.number}" + (f" ({self.process})" if self.process else "")

    @property
    def live(self) -> bool:
        """Whether it can be given jobs."""
        return self.actor is not None and self.starting is None

    def begin(self) -> None:
        """Request an actor."""
        self.actor, self.given = self.spawn(self.number), 0
        self.starting, self.since = self.actor.process.remote(), time.monotonic()

    @property
    def held(self) -> int:
        """Number of jobs under way."""
        return sum(len(assigned.jobs) for assigned in self.calls.values())

    def finish(self, call: Any) -> list[Job]:
        """Remove a finished call, and start the clock of the next one; its jobs."""
        jobs = self.calls.pop(call).jobs
        self.done += len(jobs)
        for waiting in self.calls.values():
            waiting.since = time.monotonic()
        return jobs

    def waited(self) -> float:
        """Seconds since its oldest call began, divided by the call's jobs; 0 without a call."""
        oldest = next(iter(self.calls.values()), None)
        return 0.0 if oldest is None else (time.monotonic() - oldest.since) / len(oldest.jobs)

    def fail(self) -> int:
        """Count a failure; the number of failures within the window."""
        self.failures.append(self.done)
        while self.failures[0] < self.done - _FAILURE_WINDOW:
            self.failures.popleft()
        return len(self.failures)

    def clear(self, *, hung: bool) -> list[Job]:
        """Kill the actor; its unfinished jobs, oldest first."""
        jobs = [job for assigned in self.calls.values() for job in assigned.jobs]
        if self.actor is not None:
            ray.kill(self.actor)
        if hung and self.process is not None:
            kill_process(self.process)
        self.actor, self.starting, self.process, self.calls = None, None, None, {}
        return jobs

    def pause(self) -> None:
        """Back off exponentially before the next actor is requested."""
        self.since = time.monotonic() + min(_LONGEST_PAUSE_S, 2.0 ** len(self.failures))


def store(deltas: Sequence[Delta]) -> list[StoredDelta]:
    """Put deltas into the object store."""
    return [
        StoredDelta(delta.part, delta.whole, delta.bytes, reference, place)
        for bundle in filter(None, bundles(deltas))
        for reference in [ray.put(bundle)]
        for place, delta in enumerate(bundle)
    ]


class RayBackend:
    """A pool of sampler actors.

    Args:
        config: of the samplers.
        spawn: starts an actor for a slot number and returns its handle, with the methods
            `process() -> ActorProcess` and `sample(jobs, version, deltas, charged)`, which loads
            `deltas`, Ray references to bundles and places in them, and returns a rollout and
            seconds for each packed job. Ray must not restart it: it would have lost its weights
            unnoticed.
        log: records which samplers start and fail, and why.

    Raises:
        SamplerError: no sampler can be started; its own error is the cause.
    """

    def __init__(
        self, config: SamplerConfig, spawn: Callable[[int], Any], log: EventSink = NO_LOG
    ) -> None:
        self._config, self._log = config, log
        self._waiting: deque[Job] = deque()
        self._pending: dict[Any, _Slot] = {}  # in the order of submission
        self._published: Publications[StoredDelta] = Publications()
        self._version = -1
        self._charged: tuple[float, float] | None = None
        self._stored = False  # deltas are owned by a learner actor, and lost when it dies
        self._empty_since = time.monotonic()
        self._stats_at = 0.0
        self._gauges: dict[str, float] = {}
        self.restarts = 0
        self._slots = [_Slot(number, spawn) for number in range(config.actors)]
        try:
            for slot in self._slots:
                slot.begin()
            while not self._live():
                self.collect(_POLL_S)
        except BaseException:
            self.close()
            raise

    def _live(self) -> list[_Slot]:
        return [slot for slot in self._slots if slot.live]

    def _others_left(self, lost: _Slot) -> bool:
        """Whether another slot has a sampler, or is starting one."""
        others = [slot for slot in self._slots if slot is not lost]
        return any(slot.live or slot.starting is not None for slot in others)

    def publish(self, snapshot: Snapshot | StoredSnapshot) -> None:
        """See `Backend`; one copy for all, in the object store."""
        # Replaced references stay alive through the calls that use them.
        self._stored = isinstance(snapshot, StoredSnapshot)
        if isinstance(snapshot, StoredSnapshot):
            self._published.add(snapshot.deltas)
        else:
            self._published.add(store(snapshot.deltas))
        self._version, self._charged = snapshot.version, snapshot.charged

    def room(self) -> int:
        """See `Backend`."""
        slots = self._config.in_flight * max(1, len(self._live()))
        return max(0, slots - sum(slot.held for slot in self._slots) - len(self._waiting))

    def submit(self, jobs: Sequence[Job]) -> None:
        """See `Backend`."""
        self._waiting.extend(jobs)
        self._dispatch()

    def _dispatch(self) -> None:
        """Submit waiting jobs to the samplers with the fewest jobs.

        A call costs the same for many jobs as for one, so a sampler gets its jobs in two calls: one
        that it works on, and one that is queued.
        """
        limit = self._config.in_flight
        free = [slot for slot in self._live() if len(slot.calls) < 2]
        share = -(-len(self._waiting) // max(1, len(free)))
        for slot in sorted(free, key=lambda slot: slot.held) * 2:
            count = min(share, -(-limit // 2), limit - slot.held, len(self._waiting))
            if count < 1 or len(slot.calls) == 2:
                continue
            jobs = [self._waiting.popleft() for _ in range(count)]
            # Calls run in order, and a failure replaces the actor: it has earlier calls' deltas.
            lacking = [(d.reference, d.place) for d in self._published.after(slot.given)]
            slot.given = self._published.count
            packed = [job.packed() for job in jobs]
            call = slot.actor.sample.remote(packed, self._version, lacking, self._charged)
            slot.calls[call] = _Assigned(jobs, time.monotonic())
            self._pending[call] = slot

    def collect(self, timeout_s: float) -> list[Done]:
        """See `Backend`."""
        for slot in self._slots:
            if slot.actor is None and time.monotonic() >= slot.since:  # its pause is over
                slot.begin()
        self._dispatch()
        starting = {p.starting: p for p in self._slots if p.starting is not None}
        done = []
        for call in _ready([*self._pending, *starting], timeout_s):
            if call in starting:
                self._started(starting[call])
            elif call in self._pending:  # else: its sampler failed a moment ago
                done.extend(self._fetch(call))
        limit = self._config.timeout_s
        for slot in self._live():
            if slot.waited() > limit:
                self._fail(slot, f"did not respond for {limit:.0f} s", hung=True)
        self._check_starts()
        self._dispatch()
        return done

    def _started(self, slot: _Slot) -> None:
        """Handle a sampler that has started, or failed to."""
        try:
            slot.process = ray.get(slot.starting, timeout=self._config.timeout_s)
            slot.starting = None
        except RayError as error:
            if not self._others_left(slot) and not slot.failures:
                raise SamplerError(
                    f"a sampler could not be started: {last_line(error)}",
                    remedy="Fix the cause; on a cluster, check that nodes can read the data",
                ) from error
            self._fail(slot, f"could not be started: {last_line(error)}", at_start=True)
            return
        event = "sampler_replaced" if slot.failures else "sampler_started"
        self._log.write(event, actor=f"sampler {slot.number}", node=str(slot.process))

    def _fetch(self, call: Any) -> list[Done]:
        slot = self._pending[call]
        try:
            done = ray.get(call, timeout=self._config.timeout_s)
        except RayTaskError as error:
            self._take_error(slot, slot.calls[call].jobs, error)
            return []
        except RayError as error:  # dead, unreachable, or its result was lost
            self._fail(slot, f"died: {last_line(error)}")
            return []
        del self._pending[call]
        return [
            (job, Rollout.from_bytes(rollout), busy_s)
            for job, (rollout, busy_s) in zip(slot.finish(call), done, strict=True)
        ]

    def _take_error(self, slot: _Slot, jobs: list[Job], error: RayTaskError) -> None:
        """Handle an exception in a sampler: a bug ends the run, a transient error the sampler."""
        cause = error.cause
        if isinstance(cause, DataError | StorageError):
            self._fail(slot, f"could not read its data: {cause}")
        elif not isinstance(cause, RayError):
            raise _task_error(error, jobs, slot) from error
        elif self._stored and not isinstance(cause, GetTimeoutError):
            raise LearnersLostError(
                f"the weights of version {self._version} were lost with the learner that held them:"
                f" {last_line(error)}",
                where=str(slot),
            ) from error
        else:
            self._fail(slot, f"could not fetch the weights: {last_line(error)}")

    def _check_starts(self) -> None:
        """Retry starts that take too long; at least one must succeed."""
        limit = self._config.start_timeout_s
        now = time.monotonic()
        if self._live():
            self._empty_since = now
        elif now - self._empty_since > limit:
            raise SamplerError(
                f"none of {len(self._slots)} samplers started within {limit:.0f} s;"
                f" {_in_use('CPU'):g} of the cluster's {_total('CPU'):g} CPUs are in use, a sampler"
                f" needs {self._config.threads}" + self._gpus_in_use(),
                remedy="Add nodes, request less, or raise sampler.start_timeout_s",
            )
        for slot in self._slots:
            if slot.starting is not None and now - slot.since > limit:
                self._log.write("sampler_waiting", "warning", actor=f"sampler {slot.number}")
                slot.clear(hung=False)
                slot.begin()

    def _gpus_in_use(self) -> str:
        if not self._config.gpus:
            return ""
        taken = f"{_in_use('GPU'):g} of its {_total('GPU'):g} GPUs are in use"
        return f"; {taken}, a sampler needs {self._config.gpus:g}"

    def _fail(self, slot: _Slot, what: str, *, hung: bool = False, at_start: bool = False) -> None:
        """Replace a sampler; its jobs are resubmitted first.

        Raises:
            SamplerError: too many failures in this slot, or no sampler is left.
        """
        self.restarts += 1
        times, name = slot.fail(), str(slot)
        event = "sampler_hung" if hung else "sampler_died"
        node = None if slot.process is None else str(slot.process)
        self._log.write(event, "warning", actor=f"sampler {slot.number}", node=node, cause=what)
        for call in slot.calls:
            del self._pending[call]
        self._waiting.extendleft(reversed(slot.clear(hung=hung)))
        if times > self._config.max_restarts and not (at_start and self._others_left(slot)):
            raise SamplerError(
                f"{name} {what}; that was failure {times} within 100 of its shards",
                remedy="Check that host: its memory and disk, and whether it can read the data; or"
                " raise sampler.max_restarts",
            )
        if at_start:
            slot.pause()
        else:
            slot.begin()

    def stats(self) -> BackendStats:
        """See `Backend`."""
        if time.monotonic() - self._stats_at > _STATS_EVERY_S:
            self._stats_at = time.monotonic()
            self._gauges = {"object_store/bytes": _in_use("object_store_memory")}
        return BackendStats(len(self._live()), self.restarts, self._gauges)

    def close(self) -> None:
        """See `Backend`."""
        for slot in self._slots:
            slot.clear(hung=False)
        self._slots, self._published = [], Publications()
        self._pending.clear()
        self._waiting.clear()


def _ready(calls: list[Any], timeout_s: float) -> list[Any]:
    """The finished calls, in order; waits at most `timeout_s` for one."""
    if not calls:
        time.sleep(min(timeout_s, _POLL_S))
        return []
    ray.wait(calls, num_returns=1, timeout=timeout_s)
    # The wait above may return any of several finished calls; this one keeps their order.
    ready, _ = ray.wait(calls, num_returns=len(calls), timeout=0)
    return list(ready)


def _total(resource: str) -> float:
    everything: dict[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]
    return everything.get(resource, 0.0)


def _in_use(resource: str) -> float:
    free: dict[str, float] = ray.available_resources()  # type: ignore[no-untyped-call]
    return _total(resource) - free.get(resource, 0.0)


def _task_error(error: RayTaskError, jobs: list[Job], slot: _Slot) -> RssError:
    """The sampler's own RssError with its origin, or a SamplerError for any other exception."""
    named = [f"update {job.update + 1}, shard {job.shard}" for job in jobs]
    where = f"{slot}, {' or '.join(named)}"
    cause = error.cause
    if isinstance(cause, RssError):
        found = f"{where}: {cause.where}" if cause.where else where
        return type(cause)(cause.what, where=found, remedy=cause.remedy)
    return SamplerError(
        f"a sampler raised an exception: {last_line(error)}",
        where=where,
        remedy="This is a bug in the policy or in rss-rl: --debug shows the traceback",
    )
