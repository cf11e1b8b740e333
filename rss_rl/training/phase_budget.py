"""A bound on the time of a training: each phase gets a part of it."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence

import numpy as np

from rss_rl.config import PhaseConfig
from rss_rl.errors import ConfigError

_UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*([smh]?)")


def seconds(duration: str | float) -> float:
    """A duration such as 90, "90s", "5m" or "1.5h" in seconds.

    Raises:
        ConfigError: it is none, or not above 0.
    """
    found = _DURATION.fullmatch(str(duration).strip())
    value = float(found[1]) * _UNITS[found[2]] if found else 0.0
    if value <= 0:
        raise ConfigError(
            f"{duration!r:.40} is no duration",
            where="time (--time)",
            remedy="Write it as 90s, 5m or 2h",
        )
    return value


class PhaseBudget:
    """Says when a phase has had its part of the time, counted from when this was made.

    A part is in proportion to the phase's steps; phases that end at a plateau count as the mean of
    the others. What one phase leaves over, those after it share.
    """

    def __init__(self, phases: Sequence[PhaseConfig], total_s: float) -> None:
        given = [phase.steps for phase in phases if phase.steps]
        usual = float(np.mean(given)) if given else 1.0
        self._weights = [float(phase.steps or usual) for phase in phases]
        self._end = time.monotonic() + total_s
        self._index, self._deadline = -1, self._end

    def over(self, index: int) -> bool:
        """Whether the phase of this number, which is the present one, shall end."""
        now = time.monotonic()
        if index != self._index:  # it begins
            part = self._weights[index] / sum(self._weights[index:])
            self._index, self._deadline = index, now + part * max(0.0, self._end - now)
        return now >= self._deadline
