"""Which processes are a Ray session's: its own programs, and nobody who looks at it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from rss_rl.cluster.processes import Process, end_processes, session_processes

SESSION = "session_2031-01-01_00-00-00_000000_1"
WAIT = "import sys; print('up', flush=True); sys.stdin.read()"
CHILD = f"import subprocess; subprocess.run([{sys.executable!r}, '-c', {WAIT!r}])"
RAY = "/opt/x/site-packages/ray/core/src/ray/raylet/raylet"


@contextmanager
def running(name: str, code: str, *words: str) -> Iterator[int]:
    """A process that calls itself `name`, and where it is Python's `python` runs as such."""
    process = subprocess.Popen(
        [name, "-c", code, *words],
        executable=sys.executable,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONHOME": sys.base_prefix},
    )
    with process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "up\n"
            yield process.pid
        finally:
            process.kill()


def test_only_rays_own_programs_and_their_children_count() -> None:
    log = f"/tmp/ray/{SESSION}/logs/raylet.out"
    with ExitStack() as stack:
        raylet = stack.enter_context(running(RAY, CHILD, f"--session-name={SESSION}"))
        stack.enter_context(running("tail", WAIT, "-f", log))
        stack.enter_context(running("python3", WAIT, log))
        stack.enter_context(running(RAY, WAIT, "--session-name=another"))
        found = [process.pid for process in session_processes(SESSION)]
        assert raylet in found
        assert len(found) == 2  # with its child
        killed = end_processes(session_processes(SESSION), 0)
        assert set(killed) == set(found)
    assert not session_processes(SESSION)


def test_another_users_process_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    with running(RAY, WAIT, SESSION) as pid:
        (found,) = session_processes(SESSION)
        with monkeypatch.context() as patch:
            patch.setattr(os, "getuid", lambda: 4_000_000)
            assert session_processes(SESSION) == []
            patch.setattr(os, "kill", refuse)
            assert end_processes([found], 0) == [pid]
        assert Process(found.pid, found.started).runs()


def refuse(pid: int, number: int) -> None:
    assert number == signal.SIGKILL
    raise PermissionError(pid)
