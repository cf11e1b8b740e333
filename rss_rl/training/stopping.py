"""What ends a run early: a time limit divided among its phases, and another thread.

From the begin of an update until its gradients are applied, the model and the optimisers do not
change: a checkpoint written in that time holds the state after the last complete update.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from rss_rl.config import PhaseConfig
from rss_rl.errors import ConfigError

_UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}
_COMPARISON = 0.3
"""Part of the time that is left to the comparison: its updates sample nothing, and the warm-up is
shared."""
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*([smh]?)")


def seconds(duration: str | float) -> float:
    """A duration such as 90, "90s", "5m" or "1.5h" in seconds.

    Raises:
        ConfigError: not a duration, or not above 0.
    """
    found = _DURATION.fullmatch(str(duration).strip())
    value = float(found[1]) * _UNITS[found[2]] if found else 0.0
    if value <= 0:
        raise ConfigError(
            f"{duration!r:.40} is not a duration",
            where="time (--time)",
            remedy="Write it as 90s, 5m or 2h",
        )
    return value


class TimeBudget:
    """Tells when a phase has used up its time; the total counts from construction.

    Each phase's time is proportional to its steps; phases that end at a plateau count as the mean
    of the others. Later phases share the time that a phase leaves unused.

    Args:
        compares: whether a comparison with all words follows, which needs a part of the time.
    """

    def __init__(
        self, phases: Sequence[PhaseConfig], total_s: float, *, compares: bool = False
    ) -> None:
        given = [phase.steps for phase in phases if phase.steps]
        usual = float(np.mean(given)) if given else 1.0
        self._weights = [float(phase.steps or usual) for phase in phases]
        self._limit = time.monotonic() + total_s
        self._end = self._limit - (_COMPARISON * total_s if compares else 0.0)
        self._index, self._deadline = -1, self._end

    @property
    def left_s(self) -> float:
        """Seconds that are left of all the time."""
        return max(0.0, self._limit - time.monotonic())

    def over(self, index: int) -> bool:
        """Whether the current phase, which has this index, must end."""
        now = time.monotonic()
        if index != self._index:  # it begins
            part = self._weights[index] / sum(self._weights[index:])
            self._index, self._deadline = index, now + part * max(0.0, self._end - now)
        return now >= self._deadline


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
