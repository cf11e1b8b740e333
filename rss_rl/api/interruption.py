"""Ctrl-C and SIGTERM: stop after the current update; after SIGTERM, within ten seconds."""

from __future__ import annotations

import os
import select
import signal
import sys
import threading
import time
from types import FrameType
from typing import Any, Self

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_SHOW_CURSOR = b"\x1b[?25h"
_LAST_S = 8.0
"""Time after SIGTERM at which the process ends in any case, with the last checkpoint."""
_WITHIN = b"\nended within an update; the last checkpoint is kept\n"
_AT_ONCE_S = 0.3


class Interruption:
    """A context in which the first signal requests a stop and the second ends the process.

    Python runs signal handlers only between bytecodes, but one torch operation on a long text can
    take minutes. With `watches`, a thread watches for signals, too: it ends the process at the
    second signal, and within ten seconds of a SIGTERM after which nobody called `asked`.

    Args:
        message: printed at the first signal, on standard error. raises: then interrupt the caller,
            which does not ask.
    """

    def __init__(self, message: str, *, watches: bool = False, raises: bool = False) -> None:
        self._message, self._watches, self._raises = f"\n{message}\n".encode(), watches, raises
        self._signal: int | None = None
        self._heeded = threading.Event()
        self._before: dict[int, Any] = {}
        self._ends: tuple[int, int] | None = None
        self._fd_before = -1

    def asked(self) -> bool:
        """Whether a signal came; the caller must then stop cleanly."""
        if self._signal is not None:
            self._heeded.set()
        return self._signal is not None

    @property
    def signal(self) -> int | None:
        """The signal that came, or None."""
        return self._signal

    @property
    def exit_code(self) -> int:
        """Exit code after the signal: 130 for Ctrl-C, 143 for SIGTERM."""
        return 128 + (self._signal or 0)

    def _handle(self, number: int, _: FrameType | None) -> None:
        if self._signal is None:
            self._signal = number
            os.write(2, self._message)
            if self._raises:
                raise KeyboardInterrupt
            return
        _show_cursor()
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    def _watch(self, reading: int) -> None:
        """Watch the wakeup pipe `reading` for signals, even while the main thread computes."""
        first: int | None = None
        deadline = float("inf")
        while not self._heeded.is_set():
            ready, _, _ = select.select([reading], [], [], 0.05 if first else 3600.0)
            for number in os.read(reading, 1) if ready else b"":
                if number not in _SIGNALS:
                    return  # the context was left
                if first is not None:
                    time.sleep(_AT_ONCE_S)  # give the handler time to end the process first
                    _end(number)
                first = number
                if number == signal.SIGTERM:
                    deadline = time.monotonic() + _LAST_S
            if time.monotonic() > deadline:
                os.write(2, _WITHIN)
                _end(signal.SIGTERM)

    def __enter__(self) -> Self:
        # Only the main thread can set handlers; elsewhere signals are left to the caller.
        if threading.current_thread() is threading.main_thread():
            for number in _SIGNALS:
                self._before[number] = signal.signal(number, self._handle)
            if self._watches:
                self._start_watching()
        return self

    def _start_watching(self) -> None:
        reading, writing = self._ends = os.pipe()
        os.set_blocking(writing, False)
        self._fd_before = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
        self._watcher = threading.Thread(target=self._watch, args=(reading,), daemon=True)
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
    """End the process immediately, without cleanup."""
    _show_cursor()
    os._exit(128 + number)
