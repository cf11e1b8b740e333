"""Measuring in turns: whatever else the machine does hits all that is compared alike."""

from __future__ import annotations

__all__ = ["CLOCKS", "Settings", "Turn", "in_turns", "seconds_of"]

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

Turn = Callable[[], float]
"""One measurement: seconds an item, items a second, megabytes."""

CLOCKS: dict[str, Callable[[], float]] = {"wall": time.perf_counter, "cpu": time.process_time}
"""`cpu` counts what this process computed (all its threads, the kernel's work for it included): for
one thread on a machine that others use, where a wall clock would count them."""


@dataclass(frozen=True)
class Settings:
    """How a benchmark measures.

    repeats  turns of everything that is compared
    threads  CPU threads of each process
    clock    `wall` or `cpu`, see `CLOCKS`
    """

    repeats: int = 7
    threads: int = 1
    clock: str = "wall"


def in_turns(turns: Mapping[str, Turn], repeats: int) -> dict[str, list[float]]:
    """Each of `turns` once, then each again, `repeats` times; the first round does not count.

    Every other round goes backwards, so that none always follows the same neighbour.
    """
    found: dict[str, list[float]] = {name: [] for name in turns}
    for number in range(repeats + 1):
        names = list(turns) if number % 2 else list(turns)[::-1]
        for name in names:
            value = turns[name]()
            if number:
                found[name].append(value)
    return found


def seconds_of(work: Callable[[], object], clock: str, *, least_s: float = 0.0) -> float:
    """Seconds of one call of `work`, over as many as take `least_s`, at least one."""
    read = CLOCKS[clock]
    started, calls = read(), 0
    while calls == 0 or read() - started < least_s:
        work()
        calls += 1
    return (read() - started) / calls
