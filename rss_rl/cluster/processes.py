"""Finds and ends the processes of a Ray session, so that none outlives its run. Linux only.

Needs neither Ray nor torch.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import time
from dataclasses import dataclass
from pathlib import Path

from rss_rl.proc_stat import PROC, read_proc_stat

# Where Ray's package keeps its binaries and scripts.
_PROGRAM = re.compile(r"/ray/(core|dashboard|_private|autoscaler)/")
_JOB_VARIABLE = "RAY_JOB_CONFIG_JSON_ENV_VAR"


def inside_job() -> bool:
    """Whether this process is the entry point of a job that was submitted to a cluster."""
    return _JOB_VARIABLE in os.environ


@dataclass(frozen=True)
class Process:
    """A process, distinguished from a later one of the same pid.

    pid; started: in clock ticks since boot
    """

    pid: int
    started: int

    def runs(self) -> bool:
        """Whether it still exists and is not a zombie."""
        found = read_proc_stat(self.pid)
        return found is not None and found.started == self.started and found.state != "Z"


def session_processes(session_name: str) -> list[Process]:
    """Ray's programs with the session's name in their command line, and all their descendants.

    Only this user's, and only Ray's: not a `tail` of the session's log, say. Workers change their
    command line, but are found as children of the raylet.
    """
    stats = {int(path.name): read_proc_stat(int(path.name)) for path in PROC.glob("[0-9]*")}
    alive = {pid: stat for pid, stat in stats.items() if stat is not None}
    wanted = {pid for pid in alive if _belongs(pid, session_name)}
    while more := {pid for pid in alive if alive[pid].parent in wanted} - wanted:
        wanted |= more
    wanted.discard(os.getpid())
    return [Process(pid, alive[pid].started) for pid in sorted(wanted)]


def end_processes(processes: list[Process], patience_s: float) -> list[int]:
    """Wait for the processes to end, then kill the rest; returns the ids of those killed."""
    deadline = time.monotonic() + patience_s
    while any(process.runs() for process in processes) and time.monotonic() < deadline:
        time.sleep(0.05)
    killed = [process.pid for process in processes if process.runs()]
    for pid in killed:
        # A child may have changed its user.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
    return killed


def _belongs(pid: int, session_name: str) -> bool:
    entry = PROC / str(pid)
    try:
        own = entry.stat().st_uid == os.getuid()
        words = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:  # it ended meanwhile
        return False
    named = any(session_name in word for word in words)
    return own and named and _PROGRAM.search(_program(words)) is not None


def _program(words: list[str]) -> str:
    """The program that runs; for a Python interpreter, its script."""
    if not Path(words[0]).name.startswith("python"):
        return words[0]
    return next((word for word in words[1:] if not word.startswith("-")), "")
