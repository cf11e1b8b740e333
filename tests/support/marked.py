"""Finding all processes that a test started, however deep, by a mark in their environment."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

MARK = "RSS_RL_TEST_MARK"


def processes_of(mark: str) -> dict[int, str]:
    """Command lines, by process number, of the living processes that inherited the mark."""
    found = {}
    for process in Path("/proc").iterdir():
        try:
            if f"{MARK}={mark}".encode() in (process / "environ").read_bytes():
                line = (process / "cmdline").read_bytes().replace(b"\0", b" ")
                found[int(process.name)] = line.decode(errors="replace")
        except OSError:
            continue
    return found


def kill_all(pids: Iterable[int]) -> None:
    """SIGKILL them; those that have ended are left alone."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def wait_until(what: Callable[[], object], seconds: float) -> bool:
    """Whether it came true in time."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if what():
            return True
        time.sleep(0.1)
    return False
