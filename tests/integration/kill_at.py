"""Trains in child processes that kill themselves with SIGKILL; run as a program by test_resume.

    python kill_at.py CONFIG.json RUN KILL...

Each KILL is one attempt at the run in RUN, which resumes the one before: `update:N` is killed after
its update N, `save_checkpoint:N` and `mark_checkpoint:N` at the recorder's N-th call of that
function, `finish` is not. The library is imported once, and each attempt is a fork.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import rss_rl.training.recorder as recorder
from rss_rl.config import parse_config
from rss_rl.training.run import train
from rss_rl.training.trainer import Updated


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def die_at_call(name: str, number: int) -> None:
    """Have the recorder die instead of its `number`-th call of a function."""
    function, calls = getattr(recorder, name), []

    def counted(*arguments: Any, **options: Any) -> Any:
        calls.append(1)
        if len(calls) == number:
            die()
        return function(*arguments, **options)

    setattr(recorder, name, counted)


def attempt(config: Path, run: Path, kill: str) -> None:
    """One attempt."""
    what, _, number = kill.partition(":")
    if what not in ("update", "finish"):
        die_at_call(what, int(number))
    updates = 0
    parsed = parse_config(json.loads(config.read_text()), where=str(config))
    for event in train(parsed, run, resume=True):
        updates += isinstance(event, Updated)
        if what == "update" and updates == int(number):
            die()


def main() -> None:
    config, run = Path(sys.argv[1]), Path(sys.argv[2])
    for kill in sys.argv[3:]:
        child = os.fork()
        if child == 0:
            attempt(config, run, kill)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        wanted = 0 if kill == "finish" else -signal.SIGKILL
        code = os.waitstatus_to_exitcode(status)
        if code != wanted:
            sys.exit(f"{kill}: ended with {code}, not {wanted}")


if __name__ == "__main__":
    main()
