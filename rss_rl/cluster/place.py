"""One place of the pool of Ray samplers: the actor that is there, or the time when one comes.

Needs no torch.
"""

from __future__ import annotations

__all__ = ["Flight", "Place", "last_line"]

import os
import signal
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from rss_rl.cluster.home import Home
from rss_rl.rollouts.rollout import SampleJob

_FAILURE_WINDOW = 100
_LONGEST_PAUSE_S = 60.0


@dataclass
class Flight:
    """A job that a sampler has; its time is counted from when it was the sampler's oldest."""

    job: SampleJob
    began: float


@dataclass
class Place:
    """A sampler, or the room for one.

    number    of the place; spawn: starts an actor for it
    actor     None while the place pauses after failed starts
    starting  the answer to wait for before it is given work; None once it came
    since     when the actor was asked for, or when the next one will be
    done      jobs that the samplers of this place finished
    given     publications of which its actor has, or is about to load, what it lacked
    failures  values of `done` at each failure within the last 100 jobs
    """

    number: int
    spawn: Callable[[int], Any]
    actor: Any = None
    starting: Any = None
    since: float = 0.0
    home: Home | None = None
    flights: dict[Any, Flight] = field(default_factory=dict)
    done: int = 0
    given: int = 0
    failures: deque[int] = field(default_factory=deque)

    def __str__(self) -> str:
        return f"sampler {self.number}" + (f" ({self.home})" if self.home else "")

    @property
    def live(self) -> bool:
        """It can be given work."""
        return self.actor is not None and self.starting is None

    def begin(self) -> None:
        """Ask for an actor."""
        self.actor, self.given = self.spawn(self.number), 0
        self.starting, self.since = self.actor.home.remote(), time.monotonic()

    def begin_if_due(self) -> None:
        """Ask for an actor where a pause is over."""
        if self.actor is None and time.monotonic() >= self.since:
            self.begin()

    def welcome(self, home: Home) -> None:
        """The actor answered."""
        self.home, self.starting = home, None

    def finish(self, call: Any) -> SampleJob:
        """A job is done; the clock of the next one starts."""
        job = self.flights.pop(call).job
        self.done += 1
        for waiting in self.flights.values():
            waiting.began = time.monotonic()
        return job

    def waited(self) -> float:
        """Seconds since its oldest job should have been at work; 0 where it has none."""
        oldest = next(iter(self.flights.values()), None)
        return 0.0 if oldest is None else time.monotonic() - oldest.began

    def fail(self) -> int:
        """Count a failure; how many there were within the window."""
        self.failures.append(self.done)
        while self.failures[0] < self.done - _FAILURE_WINDOW:
            self.failures.popleft()
        return len(self.failures)

    def clear(self, *, hung: bool) -> list[SampleJob]:
        """End the actor; the jobs that it had, oldest first."""
        jobs = [flight.job for flight in self.flights.values()]
        if self.actor is not None:
            ray.kill(self.actor)
        if hung and self.home is not None:
            _end_on(self.home)
        self.actor, self.starting, self.home, self.flights = None, None, None, {}
        return jobs

    def pause(self) -> None:
        """Let a while pass before the next actor is asked for, longer with each failure."""
        self.since = time.monotonic() + min(_LONGEST_PAUSE_S, 2.0 ** len(self.failures))


def _end_on(home: Home) -> None:
    """End a process on its own node: one that is stopped does not hear Ray's request."""
    if home.node == ray.get_runtime_context().get_node_id():
        _kill_worker(home.pid)
        return
    there = NodeAffinitySchedulingStrategy(home.node, soft=False)
    _end_process.options(scheduling_strategy=there).remote(home.pid)


@ray.remote(num_cpus=0, max_retries=0)
def _end_process(pid: int) -> None:
    """On the node on which this runs."""
    _kill_worker(pid)


def _kill_worker(pid: int) -> None:
    """Kill a worker of Ray's on this node."""
    try:
        if Path(f"/proc/{pid}/cmdline").read_bytes().startswith(b"ray::"):
            os.kill(pid, signal.SIGKILL)
    except (FileNotFoundError, ProcessLookupError):
        return


def last_line(error: Exception) -> str:
    """The last line of Ray's message, which names the original exception."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__
