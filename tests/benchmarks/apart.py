"""One piece of work in a process of its own, which may run out of memory or of time. Linux only.

Processes are forked from a server that has imported torch and computed nothing, so that each begins
in the same state, at once, whatever the caller has done.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import resource
import signal
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

PRELOADED = ["torch", "rss_rl.models.build"]
OK, OUT_OF_MEMORY, TOO_SLOW, FAILED = "ok", "out of memory", "too slow", "failed"
_NO_MEMORY = ("can't allocate memory", "bad_alloc", "could not create a memory")
"""What torch's allocator, C++ and oneDNN say where the system gives no more."""

_WAITED = 10
"""Times its CPU seconds that a process may take on the clock, for where others want the cores."""


@dataclass(frozen=True)
class Outcome:
    """How the work ended.

    status  ok, out of memory, too slow or failed
    value   what it returned, where ok
    why     of what is not ok: the limit, or what went wrong
    """

    status: str
    value: Any = None
    why: str = ""


def run_apart(work: Callable[..., Any], *arguments: Any, memory_mb: float, seconds: int) -> Outcome:
    """Call `work` elsewhere; what it returned, or why there is nothing.

    Args:
        work: a function of a module that can be imported, as its arguments and result can be sent.
        memory_mb: address space it may take beyond what the process begins with.
        seconds: CPU time after which the process is killed, whole; so is one that takes ten times
            as long on the clock.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    here, there = context.Pipe(duplex=False)
    process = context.Process(
        target=_main, args=(there, work, arguments, memory_mb, seconds), daemon=True
    )
    process.start()
    there.close()
    try:
        if not here.poll(_WAITED * seconds):
            return Outcome(TOO_SLOW, why=f"> {_WAITED * seconds:g} s on the clock")
        outcome: Outcome = here.recv()
        return outcome
    except EOFError:
        process.join(timeout=10)
        return _died(process.exitcode, seconds)
    finally:
        here.close()
        process.kill()
        process.join(timeout=10)


def _died(code: int | None, seconds: int) -> Outcome:
    """Of a process that is gone without a word; a kill of nobody's is the system's, for memory."""
    if code == -signal.SIGXCPU:
        return Outcome(TOO_SLOW, why=f"> {seconds} s")
    if code == -signal.SIGKILL:
        return Outcome(OUT_OF_MEMORY, why="killed by the system")
    return Outcome(FAILED, why=f"the process ended with {code}")


def _main(
    pipe: Connection,
    work: Callable[..., Any],
    arguments: tuple[Any, ...],
    memory_mb: float,
    seconds: int,
) -> None:
    # Should the machine run out of memory before the limit, then this is what has to go.
    Path("/proc/self/oom_score_adj").write_text("1000")
    limit = int(1e6 * (held_mb("VmSize") + memory_mb))
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
    try:
        outcome = Outcome(OK, work(*arguments))
    except Exception as error:
        said = f"{type(error).__name__}: {error}".splitlines()[0]
        if isinstance(error, MemoryError) or any(words in str(error) for words in _NO_MEMORY):
            outcome = Outcome(OUT_OF_MEMORY, why=f"> {memory_mb / 1000:.3g} GB")
        else:
            outcome = Outcome(FAILED, why=said)
    pipe.send(outcome)


class Peak:
    """Megabytes that this process holds at most from now on, above what it holds now."""

    def __init__(self) -> None:
        # Memory that was freed but kept would be used again and not be counted (glibc).
        ctypes.CDLL(None).malloc_trim(0)
        Path("/proc/self/clear_refs").write_text("5")  # VmHWM begins anew at what is resident
        self._start = held_mb("VmRSS")

    def mb(self) -> float:
        """The peak so far."""
        return held_mb("VmHWM") - self._start


def held_mb(field: str) -> float:
    """A line of /proc/self/status (VmSize, VmRSS, VmHWM), in megabytes of 10^6 bytes."""
    return _kibibytes("/proc/self/status", field) * 1024 / 1e6


def available_mb() -> float:
    """Memory that the machine could still give."""
    return _kibibytes("/proc/meminfo", "MemAvailable") * 1024 / 1e6


def _kibibytes(path: str, field: str) -> int:
    lines = (line.partition(":") for line in Path(path).read_text().splitlines())
    return next(int(value.split()[0]) for name, _, value in lines if name == field)
