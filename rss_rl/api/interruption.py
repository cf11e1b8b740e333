"""Ctrl-C and SIGTERM as a request to stop after the present update."""

from __future__ import annotations

__all__ = ["Interruption"]

import os
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any, Self

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_SHOW_CURSOR = b"\x1b[?25h"


class Interruption:
    """While it is entered, the first signal is noted and the second ends the process at once.

    Args:
        announce: called from the signal handler at the first signal; must not block.
    """

    def __init__(self, announce: Callable[[], None]) -> None:
        self._announce = announce
        self._signal: int | None = None
        self._before: dict[int, Any] = {}

    def asked(self) -> bool:
        """Whether a signal came."""
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
        if sys.stdout.isatty():
            os.write(sys.stdout.fileno(), _SHOW_CURSOR)
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    def __enter__(self) -> Self:
        # Only the main thread may; elsewhere whoever started the thread looks after signals.
        if threading.current_thread() is threading.main_thread():
            for number in _SIGNALS:
                self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
