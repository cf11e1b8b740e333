"""Ray actors as samplers: jobs are idempotent, so a lost one is simply given to another actor.

The pool is elastic. It asks for `sampler.actors` actors and works with those that the cluster has
room for; one that dies or hangs is replaced, and joins again whenever it can be placed. Samplers
are placed one by one and not as a placement group, which would be had as a whole or not at all.
"""

from __future__ import annotations

__all__ = ["RayBackend"]

import time
from collections import deque
from collections.abc import Callable
from typing import Any

import ray
from ray.exceptions import GetTimeoutError, RayError, RayTaskError

from rss_rl.cluster.place import Flight, Place, last_line
from rss_rl.config import SamplerConfig
from rss_rl.errors import DataError, LearnersLostError, RssError, SamplerError, StorageError
from rss_rl.logs.events import NO_LOG, EventSink
from rss_rl.rollouts.backend import BackendStats, Delivery
from rss_rl.rollouts.rollout import SampleJob
from rss_rl.rollouts.snapshot import Publications, Snapshot, StoredPiece, StoredSnapshot

_STATS_EVERY_S = 5.0
_POLL_S = 0.2


class RayBackend:
    """A pool of sampler actors.

    Args:
        config: of the samplers.
        spawn: starts an actor for a place by its number and returns its handle. It has
            `home() -> Home` and `sample(job, version, pieces)`, which loads the pieces behind
            Ray's references in `pieces` and gives a `pyarrow.RecordBatch` and seconds, and no
            restarts of Ray's own: an actor that Ray restarts is silently empty.
        log: told which samplers come and go, and why.

    Raises:
        SamplerError: no sampler can be started; its own error is the cause.
    """

    def __init__(
        self, config: SamplerConfig, spawn: Callable[[int], Any], log: EventSink = NO_LOG
    ) -> None:
        self._config, self._log = config, log
        self._waiting: deque[SampleJob] = deque()
        self._flying: dict[Any, Place] = {}  # in the order of submission
        self._published: Publications[StoredPiece] = Publications()
        self._version = -1
        self._stored = False  # by a learner actor, which may take them with it
        self._deserted_since = time.monotonic()
        self._stats_at = 0.0
        self._gauges: dict[str, float] = {}
        self.restarts = 0
        self._places = [Place(number, spawn) for number in range(config.actors)]
        try:
            for place in self._places:
                place.begin()
            while not self._live():
                self.collect(_POLL_S)
        except BaseException:
            self.close()
            raise

    def _live(self) -> list[Place]:
        return [place for place in self._places if place.live]

    def _hopeful(self, lost: Place) -> bool:
        """Whether another place than this one works, or may soon."""
        others = [place for place in self._places if place is not lost]
        return any(place.live or place.starting is not None for place in others)

    def publish(self, snapshot: Snapshot | StoredSnapshot) -> None:
        """See `Backend`; one copy for all, in the object store."""
        # References that others replace stay alive through the calls that were given them.
        self._stored = isinstance(snapshot, StoredSnapshot)
        if isinstance(snapshot, StoredSnapshot):
            pieces = snapshot.pieces
        else:
            pieces = tuple(
                StoredPiece(piece.part, piece.whole, piece.bytes, ray.put(piece))
                for piece in snapshot.pieces
            )
        self._published.add(pieces)
        self._version = snapshot.version

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
            # An actor takes its calls in turn, and is replaced if one fails: it holds the others'.
            lacking = [piece.reference for piece in self._published.after(place.given)]
            place.given = self._published.count
            call = place.actor.sample.remote(job, self._version, lacking)
            place.flights[call] = Flight(job, time.monotonic())
            self._flying[call] = place

    def collect(self, timeout_s: float) -> list[Delivery]:
        """See `Backend`."""
        for place in self._places:
            place.begin_if_due()
        self._dispatch()
        starting = {p.starting: p for p in self._places if p.starting is not None}
        deliveries = []
        for call in _ready([*self._flying, *starting], timeout_s):
            if call in starting:
                self._welcome(starting[call])
            elif call in self._flying:  # else: its sampler failed a moment ago
                deliveries.extend(self._receive(call))
        self._check_overdue()
        self._check_starts()
        self._dispatch()
        return deliveries

    def _welcome(self, place: Place) -> None:
        """A sampler has started, or failed to."""
        try:
            place.welcome(ray.get(place.starting, timeout=self._config.timeout_s))
        except RayError as error:
            if not self._hopeful(place) and not place.failures:
                raise SamplerError(
                    f"a sampler could not be started: {last_line(error)}",
                    remedy="Mend what it says; on a cluster, look whether nodes can read the data",
                ) from error
            self._fail(place, f"could not be started: {last_line(error)}", at_start=True)
            return
        event = "sampler_replaced" if place.failures else "sampler_started"
        self._log.write(event, actor=f"sampler {place.number}", node=str(place.home))

    def _receive(self, call: Any) -> list[Delivery]:
        place = self._flying[call]
        try:
            rollout, busy_s = ray.get(call, timeout=self._config.timeout_s)
        except RayTaskError as error:
            self._take_error(place, place.flights[call].job, error)
            return []
        except RayError as error:  # dead, unreachable, or its answer was lost
            self._fail(place, f"died: {last_line(error)}")
            return []
        del self._flying[call]
        return [Delivery(place.finish(call), rollout, busy_s)]

    def _take_error(self, place: Place, job: SampleJob, error: RayTaskError) -> None:
        """The code of a sampler raised: a bug ends the run, what may pass costs the sampler."""
        cause = error.cause
        if isinstance(cause, DataError | StorageError):
            self._fail(place, f"could not read its data: {cause}")
        elif not isinstance(cause, RayError):
            raise _task_error(error, job, place) from error
        elif self._stored and not isinstance(cause, GetTimeoutError):
            raise LearnersLostError(
                f"the weights of version {self._version} went with the learner that held them:"
                f" {last_line(error)}",
                where=str(place),
            ) from error
        else:
            self._fail(place, f"could not fetch the weights: {last_line(error)}")

    def _check_overdue(self) -> None:
        limit = self._config.timeout_s
        for place in self._live():
            if place.waited() > limit:
                self._fail(place, f"gave no answer for {limit:.0f} s", hung=True)

    def _check_starts(self) -> None:
        """A start that takes too long is tried again; one at least must succeed."""
        limit = self._config.start_timeout_s
        now = time.monotonic()
        if self._live():
            self._deserted_since = now
        elif now - self._deserted_since > limit:
            raise SamplerError(
                f"none of {len(self._places)} samplers started within {limit:.0f} s;"
                f" {_in_use('CPU'):g} of the cluster's {_total('CPU'):g} CPUs are taken, a sampler"
                f" wants {self._config.threads}",
                remedy="Add nodes, ask for less, or raise sampler.start_timeout_s",
            )
        for place in self._places:
            if place.starting is not None and now - place.since > limit:
                self._log.write("sampler_waiting", "warning", actor=f"sampler {place.number}")
                place.clear(hung=False)
                place.begin()

    def _fail(self, place: Place, what: str, *, hung: bool = False, at_start: bool = False) -> None:
        """Replace a sampler; its jobs go to others, first of all.

        Raises:
            SamplerError: it happens too often at this place, or nobody is left.
        """
        self.restarts += 1
        times, name = place.fail(), str(place)
        event = "sampler_hung" if hung else "sampler_died"
        node = None if place.home is None else str(place.home)
        self._log.write(event, "warning", actor=f"sampler {place.number}", node=node, cause=what)
        for call in place.flights:
            del self._flying[call]
        self._waiting.extendleft(reversed(place.clear(hung=hung)))
        if times > self._config.max_restarts and not (at_start and self._hopeful(place)):
            raise SamplerError(
                f"{name} {what}; that was failure {times} within 100 of its shards",
                remedy="Look at that host: memory, disk, whether it can read the data; or raise"
                " sampler.max_restarts",
            )
        if at_start:
            place.pause()
        else:
            place.begin()

    def stats(self) -> BackendStats:
        """See `Backend`."""
        if time.monotonic() - self._stats_at > _STATS_EVERY_S:
            self._stats_at = time.monotonic()
            self._gauges = {"object_store/bytes": _in_use("object_store_memory")}
        return BackendStats(len(self._live()), self.restarts, self._gauges)

    def close(self) -> None:
        """See `Backend`."""
        for place in self._places:
            place.clear(hung=False)
        self._places, self._published = [], Publications()
        self._flying.clear()
        self._waiting.clear()


def _ready(calls: list[Any], timeout_s: float) -> list[Any]:
    """The calls that are answered, in their order; waits for one at most `timeout_s`."""
    if not calls:
        time.sleep(min(timeout_s, _POLL_S))
        return []
    ray.wait(calls, num_returns=1, timeout=timeout_s)
    # Of several ready ones the call above picks any; this one keeps their order.
    ready, _ = ray.wait(calls, num_returns=len(calls), timeout=0)
    return list(ready)


def _total(resource: str) -> float:
    everything: dict[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]
    return everything.get(resource, 0.0)


def _in_use(resource: str) -> float:
    free: dict[str, float] = ray.available_resources()  # type: ignore[no-untyped-call]
    return _total(resource) - free.get(resource, 0.0)


def _task_error(error: RayTaskError, job: SampleJob, place: Place) -> RssError:
    """The sampler's own error where it is one of ours, else a report of the bug; says where."""
    where = f"{place}, update {job.update + 1}, shard {job.shard}"
    cause = error.cause
    if isinstance(cause, RssError):
        found = f"{where}: {cause.where}" if cause.where else where
        return type(cause)(cause.what, where=found, remedy=cause.remedy)
    return SamplerError(
        f"a sampler raised an exception: {last_line(error)}",
        where=where,
        remedy="It is a bug of the policy or the program: --debug shows the traceback",
    )
