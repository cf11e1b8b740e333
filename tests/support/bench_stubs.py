"""What workers and benchmarks of the harness's own tests do; imports nothing heavy."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator

from suite.records import Record, limited
from suite.timing import Settings


def counter(start: int, how: str = "") -> Callable[[], float]:
    """A worker's turns: numbers from `start`, or one that fails."""
    values = iter(range(start, start + 10))
    print("whatever a library prints")

    def turn() -> float:
        if how == "gone":
            os._exit(7)
        if how == "asleep":
            time.sleep(60)
        return float(os.environ.get("SUITE_TEST", next(values)))

    return turn


def two_records(settings: Settings) -> Iterator[Record]:
    """A benchmark that says one thing, is killed, and would have said another."""
    yield limited("test/first", [1.0] * settings.repeats, 2.0, "s")
    os.kill(os.getpid(), signal.SIGKILL)
    yield limited("test/second", [1.0], 2.0, "s")


def endless(settings: Settings) -> Iterator[Record]:
    """A benchmark that says one thing and hangs."""
    yield limited("test/first", [1.0] * settings.repeats, 2.0, "s")
    time.sleep(60)
