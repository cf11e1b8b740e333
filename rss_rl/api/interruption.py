"""Ctrl-C and SIGTERM: a request to stop after the present update, at most ten seconds later."""

from __future__ import annotations

import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any, Self

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_SHOW_CURSOR = b"\x1b[?25h"
PATIENCE_S = 4.0
"""An update that takes longer after SIGTERM is thrown away."""
_LAST_S = 8.0
"""After SIGTERM: then the process ends, whatever it does, with the checkpoint that is there."""
_AT_ONCE_S = 0.3


class Interruption:
    """While it is entered, the first signal is noted and the second ends the process at once.

    Python hears of a signal between two of its own operations, and one of torch's on a long text
    takes minutes. With `leave` a thread waits for signals, too. It ends the process at the second,
    and before ten seconds are over where the first was SIGTERM and nobody heeded it.

    Args:
        announce: called from the signal handler at the first signal; must not block.
        leave: called in that thread before it ends the process, to save what there is: True once
            nothing is left to be done. Until then, and for so long as there is time, once more.
    """

    def __init__(
        self, announce: Callable[[], None], leave: Callable[[], bool] | None = None
    ) -> None:
        self._announce, self._leave = announce, leave
        self._signal: int | None = None
        self._heeded = threading.Event()
        self._before: dict[int, Any] = {}
        self._ends: tuple[int, int] | None = None
        self._fd_before = -1

    def asked(self) -> bool:
        """Whether a signal came; callers then stop in good order."""
        if self._signal is not None:
            self._heeded.set()
        return self._signal is not None

    @property
    def signal(self) -> int | None:
        """The signal that came, or None."""
        return self._signal

    @property
    def exit_code(self) -> int:
        """Of a process that stopped for the signal: 130 after Ctrl-C, 143 after SIGTERM."""
        return 128 + (self._signal or 0)

    def _handle(self, number: int, _: FrameType | None) -> None:
        if self._signal is None:
            self._signal = number
            self._announce()
            return
        _show_cursor()
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    def _watch(self, reading: int, leave: Callable[[], bool]) -> None:
        """Wait for signals, which `reading` yields as they come, whatever else computes."""
        first: int | None = None
        deadline = float("inf")
        while not self._heeded.is_set():
            ready, _, _ = select.select([reading], [], [], 0.05 if first else 3600.0)
            for number in os.read(reading, 1) if ready else b"":
                if number not in _SIGNALS:
                    return  # the context was left
                if first is not None:
                    time.sleep(_AT_ONCE_S)  # for the handler, which ends it as signals do
                    _end(number)
                first = number
                if number == signal.SIGTERM:
                    deadline = time.monotonic() + PATIENCE_S
            late = time.monotonic() - deadline
            if late >= 0 and (leave() or late > _LAST_S - PATIENCE_S):
                _end(signal.SIGTERM)

    def __enter__(self) -> Self:
        # Only the main thread may; elsewhere whoever started the thread looks after signals.
        if threading.current_thread() is threading.main_thread():
            for number in _SIGNALS:
                self._before[number] = signal.signal(number, self._handle)
            if self._leave is not None:
                self._start_watching(self._leave)
        return self

    def _start_watching(self, leave: Callable[[], bool]) -> None:
        reading, writing = self._ends = os.pipe()
        os.set_blocking(writing, False)
        self._fd_before = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
        arguments = reading, leave
        self._watcher = threading.Thread(target=self._watch, args=arguments, daemon=True)
        self._watcher.start()

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        if self._ends is not None:
            signal.set_wakeup_fd(self._fd_before)
            os.write(self._ends[1], b"\0")
            self._watcher.join()
            for end in self._ends:
                os.close(end)


def _show_cursor() -> None:
    if sys.stdout.isatty():
        os.write(sys.stdout.fileno(), _SHOW_CURSOR)


def _end(number: int) -> None:
    """End the process, whatever it does."""
    _show_cursor()
    os._exit(128 + number)
