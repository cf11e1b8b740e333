"""`rss-rl` with a clock that jumps and a storage of which every third write fails.

RSS_RL_TEST_CLOCK names a file with the seconds by which the clock is wrong, RSS_RL_TEST_STORAGE=1
asks for the failures.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc._channel

from rss_rl.storage import Storage

CLOCK, STORAGE = "RSS_RL_TEST_CLOCK", "RSS_RL_TEST_STORAGE"


def jump_clock(file: Path) -> None:
    """Let `time.time` be wrong by what stands in the file, looked at ten times a second."""
    true, seen = time.time, [-1.0, 0.0]

    def wrong() -> float:
        if time.monotonic() - seen[0] > 0.1:
            seen[0] = time.monotonic()
            seen[1] = float(file.read_text() or 0.0) if file.exists() else 0.0
        return true() + seen[1]

    time.time = wrong
    # gRPC adds Python's time to a limit and compares the sum with the machine's, which is right.
    grpc._channel.time = SimpleNamespace(**{**vars(time), "time": true})


def fail_every_third(put: Callable[[object, str, object], None] = setattr) -> None:
    """Of the files that are written to a storage."""
    sound, calls = Storage._output, itertools.count(1)

    @contextmanager
    def failing(self: Storage, name: str) -> Iterator[Any]:
        if next(calls) % 3 == 0:
            raise OSError(5, "every third write fails")
        with sound(self, name) as stream:
            yield stream

    put(Storage, "_output", failing)


if __name__ == "__main__":
    if CLOCK in os.environ:
        jump_clock(Path(os.environ[CLOCK]))
    if os.environ.get(STORAGE):
        fail_every_third()
    from rss_rl.cli.main import app

    app()
