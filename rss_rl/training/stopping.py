"""A time limit, divided among the phases of a run."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence

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
