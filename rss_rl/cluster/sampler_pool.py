"""A pool of Ray actors as samplers: jobs are idempotent, so a lost one is resubmitted elsewhere.

Jobs wait in the pool until a sampler is free. Where samplers run ahead of the learner, each has one
more job to go on with while the driver learns; where they do not, the driver waits for them and
hands out the next job at once. A sampler starts each job with the newest snapshot that has reached
it. A straggling job is sent again to a sampler that has nothing to do; the first answer counts.

The pool is elastic. It requests `sampler.actors` actors and works with those that the cluster has
room for; one that dies or hangs is replaced as soon as a new one can be placed. Samplers are placed
one by one, not as a placement group, which would be all or nothing.
"""

from __future__ import annotations

import statistics
import time
from collections import Counter, deque
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
from rss_rl.rollouts.snapshot import Delta, Snapshot, StoredDelta, StoredSnapshot, bundles

_POLL_S = 0.2
_FAILURE_WINDOW = 100
_LONGEST_PAUSE_S = 60.0
_STRAGGLING = 3.0
"""A job straggles if it takes so many times the median of recent ones ..."""
_PATIENCE_S = 1.0
"""... and so long at least: a short pause of a process is no reason."""
_RECENT = 32


@dataclass
class _Slot:
    """A sampler of the pool, or the wait for one.

    number    of the slot; spawn: starts an actor for it
    actor     None while the slot pauses after a failed start
    starting  the call that returns when the actor is ready for jobs; None afterwards
    since     when the actor was requested, or when the next one will be
    jobs      under way, by call, in the order of submission
    began     when the actor began the first of them, as far as the driver knows
    done      jobs finished by samplers of this slot
    failures  values of `done` at each failure within the last 100 jobs
    """

    number: int
    spawn: Callable[[int], Any]
    actor: Any = None
    starting: Any = None
    since: float = 0.0
    process: ActorProcess | None = None
    jobs: dict[Any, Job] = field(default_factory=dict)
    began: float = 0.0
    done: int = 0
    failures: deque[int] = field(default_factory=deque)

    def __str__(self) -> str:
        return f"sampler {self.number}" + (f" ({self.process})" if self.process else "")

    @property
    def live(self) -> bool:
        """Whether it can be given jobs."""
        return self.actor is not None and self.starting is None

    def begin(self) -> None:
        """Request an actor."""
        self.actor = self.spawn(self.number)
        self.starting, self.since = self.actor.process.remote(), time.monotonic()

    def give(self, job: Job, publication: int) -> None:
        """Submit a job, to be sampled with this publication or a newer one."""
        if not self.jobs:
            self.began = time.monotonic()
        self.jobs[self.actor.sample.remote(job.packed(), publication)] = job

    def finish(self, call: Any) -> Job:
        """Remove a finished call, and start the clock of the next one; its job."""
        self.done, self.began = self.done + 1, time.monotonic()
        return self.jobs.pop(call)

    def waited(self) -> float:
        """Seconds since its oldest job began; 0 without a job."""
        return time.monotonic() - self.began if self.jobs else 0.0

    def fail(self) -> int:
        """Count a failure; the number of failures within the window."""
        self.failures.append(self.done)
        while self.failures[0] < self.done - _FAILURE_WINDOW:
            self.failures.popleft()
        return len(self.failures)

    def clear(self, *, hung: bool) -> list[Job]:
        """Kill the actor; its unfinished jobs, oldest first."""
        jobs = list(self.jobs.values())
        if self.actor is not None:
            ray.kill(self.actor)
        if hung and self.process is not None:
            kill_process(self.process)
        self.actor, self.starting, self.process, self.jobs = None, None, None, {}
        return jobs

    def pause(self) -> None:
        """Back off exponentially before the next actor is requested."""
        self.since = time.monotonic() + min(_LONGEST_PAUSE_S, 2.0 ** len(self.failures))


def store(deltas: Sequence[Delta]) -> list[StoredDelta]:
    """Put deltas into the object store."""
    return [
        StoredDelta(delta.part, delta.full, delta.bytes, reference, place)
        for bundle in filter(None, bundles(deltas))
        for reference in [ray.put(bundle)]
        for place, delta in enumerate(bundle)
    ]


class RayBackend:
    """A pool of sampler actors.

    Args:
        config: of the samplers.
        spawn: starts an actor for a slot number and returns its handle, with the methods
            `process() -> ActorProcess`; `publish(number, snapshot)`, which takes a `StoredSnapshot`
            while a job is at work, too; and `sample(job, number)`, which returns the rollout of a
            packed job with the newest snapshot, at least that with this number, and the seconds
            that it took. Ray must not restart it: it would have lost its weights unnoticed.
        log: records which samplers start and fail, and why.

    Raises:
        SamplerError: no sampler can be started; its own error is the cause.
    """

    def __init__(
        self, config: SamplerConfig, spawn: Callable[[int], Any], log: EventSink = NO_LOG
    ) -> None:
        self._config, self._log = config, log
        self._waiting: deque[Job] = deque()
        self._open: set[Job] = set()  # not answered yet
        self._recent_s: deque[float] = deque(maxlen=_RECENT)  # of finished jobs
        self._newest = StoredSnapshot(-1, ())  # with all deltas of the state
        self._publications = 0
        self._stored = False  # deltas are owned by a learner actor, and lost when it dies
        self._empty_since = time.monotonic()
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
        # Replaced references stay alive until the samplers that need them have fetched them.
        self._stored = isinstance(snapshot, StoredSnapshot)
        if not isinstance(snapshot, StoredSnapshot):
            snapshot = StoredSnapshot(snapshot.version, tuple(store(snapshot.deltas)))
        self._newest = self._newest.then(snapshot)
        self._publications += 1
        for slot in self._live():
            slot.actor.publish.remote(self._publications, snapshot)

    def submit(self, jobs: Sequence[Job]) -> None:
        """See `Backend`."""
        self._waiting.extend(jobs)
        self._open.update(jobs)
        self._dispatch()

    def forget(self) -> None:
        """See `Backend`."""
        self._waiting.clear()
        self._open.clear()

    def _dispatch(self) -> None:
        """Give waiting jobs to samplers, to those without one first."""
        for held in range(2 if self._config.max_policy_lag else 1):
            for slot in self._live():
                if self._waiting and len(slot.jobs) == held:
                    slot.give(self._waiting.popleft(), self._publications)

    def collect(self, timeout_s: float) -> list[Done]:
        """See `Backend`."""
        for slot in self._slots:
            if slot.actor is None and time.monotonic() >= slot.since:  # its pause is over
                slot.begin()
        self._dispatch()
        starting = {p.starting: p for p in self._slots if p.starting is not None}
        working = {call: slot for slot in self._slots for call in slot.jobs}
        ready = _ready([*working, *starting], timeout_s)
        done = []
        for call in ready:
            if call in starting:
                self._started(starting[call])
            elif call in working[call].jobs:  # else: its sampler failed a moment ago
                done.extend(self._fetch(working[call], call))
        limit = self._config.timeout_s
        for slot in self._live():
            if slot.waited() > limit:
                self._fail(slot, f"did not respond for {limit:.0f} s", hung=True)
        self._check_starts()
        self._dispatch()
        if not ready:
            self._resend()
        return done

    def _resend(self) -> None:
        """Send jobs of stragglers to samplers that have nothing to do; once each."""
        if not self._recent_s:
            return
        limit = max(_PATIENCE_S, _STRAGGLING * statistics.median(self._recent_s))
        copies = Counter(job for slot in self._slots for job in slot.jobs.values())
        late = [
            (slot, job)
            for slot in self._live()
            if slot.waited() > limit
            for job in slot.jobs.values()
            if job in self._open and copies[job] == 1
        ]
        idle = [slot for slot in self._live() if not slot.jobs]
        for (straggler, job), slot in zip(late, idle, strict=False):
            slot.give(job, self._publications)
            self._log.write(
                "job_resent",
                "warning",
                actor=f"sampler {straggler.number}",
                node=str(straggler.process),
                job=_named(job),
                waited_s=straggler.waited(),
            )

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
        slot.actor.publish.remote(self._publications, self._newest)
        event = "sampler_replaced" if slot.failures else "sampler_started"
        self._log.write(event, actor=f"sampler {slot.number}", node=str(slot.process))

    def _fetch(self, slot: _Slot, call: Any) -> list[Done]:
        try:
            rollout, busy_s = ray.get(call, timeout=self._config.timeout_s)
        except RayTaskError as error:
            self._take_error(slot, slot.jobs[call], error)
            return []
        except RayError as error:  # dead, unreachable, or its result was lost
            self._fail(slot, f"died: {last_line(error)}")
            return []
        job = slot.finish(call)
        if job not in self._open:  # forgotten, or another sampler was faster
            return []
        self._open.remove(job)
        self._recent_s.append(busy_s)
        return [(job, Rollout.from_bytes(rollout), busy_s)]

    def _take_error(self, slot: _Slot, job: Job, error: RayTaskError) -> None:
        """Handle an exception in a sampler: a bug ends the run, a transient error the sampler."""
        cause = error.cause
        if isinstance(cause, DataError | StorageError):
            self._fail(slot, f"could not read its data: {cause}")
        elif not isinstance(cause, RayError):
            raise _task_error(error, job, slot) from error
        elif self._stored and not isinstance(cause, GetTimeoutError):
            raise LearnersLostError(
                f"the weights of version {self._newest.version} were lost with the learner that"
                f" held them: {last_line(error)}",
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
                f"none of {len(self._slots)} samplers started within {limit:.0f} s"
                + _in_use("CPU", self._config.threads)
                + _in_use("GPU", self._config.gpus),
                remedy="Add nodes, request less, or raise sampler.start_timeout_s",
            )
        for slot in self._slots:
            if slot.starting is not None and now - slot.since > limit:
                self._log.write("sampler_waiting", "warning", actor=f"sampler {slot.number}")
                slot.clear(hung=False)
                slot.begin()

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
        lost = [job for job in slot.clear(hung=hung) if job in self._open]
        self._waiting.extendleft(reversed(lost))
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
        return BackendStats(len(self._live()), self.restarts)

    def close(self) -> None:
        """See `Backend`."""
        for slot in self._slots:
            slot.clear(hung=False)
        self._slots, self._newest = [], StoredSnapshot(-1, ())
        self.forget()


def _ready(calls: list[Any], timeout_s: float) -> list[Any]:
    """The finished calls, in order; waits at most `timeout_s` for one.

    Their results may still be on other nodes: Ray would else count as ready only what it has
    copied here, and a sampler that has long answered as one that does not.
    """
    if not calls:
        time.sleep(min(timeout_s, _POLL_S))
        return []
    ray.wait(calls, num_returns=1, timeout=timeout_s, fetch_local=False)
    # The wait above may return any of several finished calls; this one keeps their order.
    ready, _ = ray.wait(calls, num_returns=len(calls), timeout=0, fetch_local=False)
    return list(ready)


def _in_use(resource: str, needed: float) -> str:
    """How much of a resource the cluster has left for samplers that need some."""
    total, free = ray.cluster_resources(), ray.available_resources()  # type: ignore[no-untyped-call]
    has = total.get(resource, 0.0)
    used = f"; {has - free.get(resource, 0.0):g} of the cluster's {has:g} {resource}s are in use"
    return f"{used}, a sampler needs {needed:g}" if needed else ""


def _named(job: Job) -> str:
    return f"update {job.update + 1}, shard {job.shard}"


def _task_error(error: RayTaskError, job: Job, slot: _Slot) -> RssError:
    """The sampler's own RssError with its origin, or a SamplerError for any other exception."""
    where = f"{slot}, {_named(job)}"
    cause = error.cause
    if isinstance(cause, RssError):
        origin = f"{where}: {cause.where}" if cause.where else where
        return type(cause)(cause.what, where=origin, remedy=cause.remedy)
    return SamplerError(
        f"a sampler raised an exception: {last_line(error)}",
        where=where,
        remedy="This is a bug in the policy or in rss-rl: --debug shows the traceback",
    )
