"""What a run costs in time, and a limit of it that is divided among its phases."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from rss_rl.config import RunConfig
from rss_rl.errors import ConfigError

_UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}
_SAMPLED = 2.0
"""What an update of the policy costs where nothing is known, as a multiple of one of the classifier
alone."""
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*([smh]?)")


def seconds(duration: str | float) -> float:
    """A duration such as 90, "90s", "5m" or "1.5h" in seconds.

    Raises:
        ConfigError: not a duration, or not above 0.
    """
    match = _DURATION.fullmatch(str(duration).strip())
    value = float(match[1]) * _UNITS[match[2]] if match else 0.0
    if value <= 0:
        raise ConfigError(
            f"{duration!r:.40} is not a duration",
            where="time (--time)",
            remedy="Write it as 90s, 5m or 2h",
        )
    return value


class Costs(NamedTuple):
    """Seconds of an update of each phase, and of one evaluation of dev."""

    updates: Sequence[float]
    evaluation: float = 0.0


class TimeBudget:
    """What a run costs, and when a phase has used up its time, which counts from construction on.

    Each phase, and the comparison with all words at the end, gets a part of the time in proportion
    to what its updates cost, so that all make the same part of them. A phase without a number of
    updates counts as the mean of the others. Later ones share the time that a phase leaves unused.

    Args:
        config: of the run.
        total_s: time for everything.
        costs: as measured; None: not known.
    """

    def __init__(
        self, config: RunConfig, total_s: float = math.inf, costs: Costs | None = None
    ) -> None:
        phases, known = config.phases, [phase.steps for phase in config.phases if phase.steps]
        usual = float(np.mean(known)) if known else 1.0
        steps = [float(phase.steps or usual) for phase in phases]
        self.measured = costs is not None
        costs = costs or Costs([_SAMPLED if phase.policy else 1.0 for phase in phases])
        each, self._evaluation = [*costs.updates], costs.evaluation
        if config.compares:  # which continues from the end of the warm-up
            shared = phases[0].selection == "all" and len(phases) > 1
            steps.append(sum(steps[shared:]))
            each.append(each[0])
        every, self._scorings = config.evaluation.every, 6 if config.selects else 2
        # Of an update, with its part of the evaluations between the first and the last of a phase.
        self.costs = [
            cost + self._evaluation * max(0, math.ceil(count / every) - 1) / count
            for count, cost in zip(steps, each, strict=True)
        ]
        self._weights = [count * cost for count, cost in zip(steps, self.costs, strict=True)]
        self._limit = time.monotonic() + total_s
        self._index, self._deadline = -1, self._limit

    @property
    def left_s(self) -> float:
        """Seconds that are left of all the time."""
        return max(0.0, self._limit - time.monotonic())

    @property
    def updates_s(self) -> float:
        """What all updates cost, in seconds."""
        return sum(self._weights)

    def fixed_s(self, index: int = 0) -> float:
        """What evaluations cost, in seconds, however many updates there are, from the start of a
        phase on: those at its start and end, and the scores of the report."""
        return self._evaluation * (2 * (len(self.costs) - index) + self._scorings)

    def over(self, index: int) -> bool:
        """Whether the current phase, which has this index, must end."""
        if index != self._index:  # it has begun
            part = self._weights[index] / sum(self._weights[index:])
            left = max(0.0, self.left_s - self.fixed_s(index) + self._evaluation)
            self._index, self._deadline = index, time.monotonic() + part * left
        return time.monotonic() >= self._deadline

    def cost(self, index: int, updates: float) -> float:
        """What so many updates of a phase and all that follows it cost, in seconds."""
        later = sum(self._weights[index + 1 :]) + self.fixed_s(index) - self._evaluation
        return updates * self.costs[index] + later
