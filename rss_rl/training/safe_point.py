"""Lets another thread end a run in the middle of an update.

From the begin of an update until its gradients are applied, the model and the optimisers do not
change: a checkpoint written in that time holds the state after the last complete update.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class SafePoint:
    """Open from the begin of an update until its gradients are applied."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._leave: Callable[[], None] | None = None

    @contextmanager
    def open(self, leave: Callable[[], None]) -> Iterator[None]:
        """Until `close` or exit, another thread may call `leave`, which writes a checkpoint."""
        with self._lock:
            self._leave = leave
        try:
            yield
        finally:
            self.close()

    def close(self) -> None:
        """Called before parameters change. Blocks forever once another thread ends the run."""
        with self._lock:
            self._leave = None

    def leave(self) -> bool:
        """End the run if the safe point is open; the training thread then stays blocked, so the
        process must exit."""
        if not self._lock.acquire(timeout=1.0):
            return False
        if self._leave is None:
            self._lock.release()
            return False
        self._leave()  # the lock is kept, so that training cannot continue
        return True
