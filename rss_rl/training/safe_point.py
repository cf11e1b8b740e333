"""Where another thread may end a run in the middle of an update.

From the begin of an update until its gradients are applied nothing that is learnt changes: what a
checkpoint would hold is the state after the last complete update, however long the rest takes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class SafePoint:
    """Open while a run may be left; closed, it is again what was before the update."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._leave: Callable[[], None] | None = None

    @contextmanager
    def open(self, leave: Callable[[], None]) -> Iterator[None]:
        """Within it, until `close`, another thread may call `leave`, which writes a checkpoint."""
        with self._lock:
            self._leave = leave
        try:
            yield
        finally:
            self.close()

    def close(self) -> None:
        """What is learnt is about to change. Does not return once the run is being left."""
        with self._lock:
            self._leave = None

    def leave(self) -> bool:
        """Leave the run, where that is possible now; the training thread is blocked from then on.

        The process has to end after it.
        """
        if not self._lock.acquire(timeout=1.0):
            return False
        if self._leave is None:
            self._lock.release()
            return False
        self._leave()  # the lock stays: nobody may continue
        return True
