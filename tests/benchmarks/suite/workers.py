"""Turns in processes of their own, for what cannot share environment variables."""

from __future__ import annotations

__all__ = ["Worker", "WorkerError", "serve"]

import contextlib
import importlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

_HERE = Path(__file__).resolve().parents[1]
_ROOT = _HERE.parents[1]


class WorkerError(Exception):
    """A worker ended, or did not answer in time."""


class Worker:
    """A process that measures when asked.

    Args:
        target: `module:function`; the function is called with `arguments` in the process and
            returns a callable without arguments, each call of which is a turn.
        arguments: that JSON can carry.
        environment: variables beside this process's own.
        timeout_s: longest wait for the start or a turn.
    """

    def __init__(
        self,
        target: str,
        arguments: Mapping[str, Any],
        *,
        environment: Mapping[str, str] | None = None,
        timeout_s: float = 300.0,
    ) -> None:
        self._target, self.timeout_s, self._pending = target, timeout_s, b""
        paths = [str(_HERE), str(_ROOT), os.environ.get("PYTHONPATH", "")]
        variables = {"PYTHONPATH": os.pathsep.join(filter(None, paths))} | dict(environment or {})
        self._process = subprocess.Popen(
            [sys.executable, "-m", "suite.serve", target, json.dumps(dict(arguments))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | variables,
            process_group=0,
        )
        try:
            self._answer()  # ready
        except BaseException:
            self.close()
            raise

    def __call__(self) -> float:
        """One turn.

        Raises:
            WorkerError: it ended or was silent for too long.
        """
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(b"\n")
            self._process.stdin.flush()
        except OSError as error:
            raise WorkerError(f"{self._target} ended") from error
        return float(self._answer())

    def _answer(self) -> bytes:
        assert self._process.stdout is not None
        number, deadline = self._process.stdout.fileno(), time.monotonic() + self.timeout_s
        while b"\n" not in self._pending:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([number], [], [], left)[0]:
                raise WorkerError(f"{self._target} gave no answer within {self.timeout_s:g} s")
            part = os.read(number, 4096)
            if not part:
                raise WorkerError(f"{self._target} ended with {self._process.wait()}")
            self._pending += part
        line, _, self._pending = self._pending.partition(b"\n")
        return line

    def close(self) -> None:
        """End the process and all that it started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            with contextlib.suppress(OSError):
                pipe.close()

    def __enter__(self) -> Worker:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def serve(target: str, arguments: Mapping[str, Any]) -> None:
    """Make the turn and answer each line of standard input with what it measures."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever prints must not be taken for an answer
    module, _, name = target.partition(":")
    turn = getattr(importlib.import_module(module), name)(**arguments)
    print("ready", file=answers, flush=True)
    for _ in sys.stdin:
        print(float(turn()), file=answers, flush=True)
