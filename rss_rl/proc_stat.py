"""What Linux says about a process in /proc/PID/stat, see proc_pid_stat(5)."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

PROC = Path("/proc")


class ProcStat(NamedTuple):
    """State (`Z` for a zombie), process id of the parent, start time in clock ticks since boot."""

    state: str
    parent: int
    started: int


def read_proc_stat(pid: int) -> ProcStat | None:
    """The state of a process; None if there is none, or no /proc."""
    try:
        # The name of the program, in brackets, may contain anything.
        fields = (PROC / str(pid) / "stat").read_bytes().rpartition(b")")[2].split()
        return ProcStat(fields[0].decode(), int(fields[1]), int(fields[19]))
    except (OSError, ValueError, IndexError):
        return None
