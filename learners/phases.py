"""The schedule of phases: which model learns in an update, and when the next phase begins."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

from rss_rl.config import PhaseConfig

Ending = Literal["steps", "plateau", "time"]
"""Why a phase is over: it made its updates, dev no longer gets better, or its time is up."""


class Turn(NamedTuple):
    """Which model learns in one update, from which selections, and towards which share.

    sampled       the policy draws selections
    thresholded   the classifier reads what the policy selects at test time
    random_share  share of the examples that the classifier reads with a random selection
    target        share of the tokens to keep, where one is asked for
    price         lambda of heads and of dependents, as it stands, that leads there
    """

    supervised: bool
    policy: bool
    sampled: bool
    random_share: float = 0.0
    thresholded: bool = False
    target: float | None = None
    price: tuple[float, float] | None = None


class PhaseSchedule:
    """Steps through the phases by update count and dev loss.

    A phase ends after its number of steps, or after `patience` evaluations in a row without a
    better dev loss (a plateau), whichever comes first.
    """

    def __init__(self, phases: Sequence[PhaseConfig]) -> None:
        self._phases = tuple(phases)
        self.index = 0
        self.steps = 0
        self._best = math.inf
        self._stale = 0
        self._cut = False

    @property
    def finished(self) -> bool:
        """Whether all phases are over."""
        return self.index >= len(self._phases)

    @property
    def phase(self) -> PhaseConfig:
        """The current phase."""
        return self._phases[self.index]

    @property
    def is_last(self) -> bool:
        """Whether the current phase is the last."""
        return self.index == len(self._phases) - 1

    def turn(self, ahead: int = 0) -> Turn | None:
        """The turn of the update `ahead` of the next one; None after the end of the phase.

        A plateau cannot be predicted: a phase without a number of steps appears to continue.
        """
        if self.finished or self.phase_over:
            return None
        phase, steps = self.phase, self.steps + ahead
        if phase.steps is not None and steps >= phase.steps:
            return None
        supervised, policy = phase.supervised, phase.policy
        if phase.alternate_every:
            supervised = (steps // phase.alternate_every) % 2 == 0
            policy = not supervised
        random_share = 1.0 if phase.selection == "uniform_share" else phase.mixed_share
        sampled, thresholded = (phase.selection == kind for kind in ("sampled", "thresholded"))
        return Turn(supervised, policy, sampled, random_share, thresholded)

    def count(self) -> None:
        """Count an update."""
        self.steps += 1

    def observe(self, dev_loss: float) -> bool:
        """Record an evaluation; True if it is the best of the phase so far."""
        if dev_loss < self._best:
            self._best, self._stale = dev_loss, 0
            return True
        self._stale += 1
        return False

    @property
    def ending(self) -> Ending | None:
        """Why the current phase is over; None: it goes on."""
        phase = self.phase
        if phase.steps is not None and self.steps >= phase.steps:
            return "steps"
        if phase.patience is not None and self._stale >= phase.patience:
            return "plateau"
        return "time" if self._cut else None

    @property
    def phase_over(self) -> bool:
        """Whether the current phase has reached its steps or a plateau, or was cut."""
        return self.ending is not None

    def cut(self) -> None:
        """End the current phase, whose time is up. Not part of the state: a run resumed from before
        the phase's end gets a new time budget."""
        self._cut = True

    def advance(self) -> None:
        """Begin the next phase."""
        self.index, self.steps, self._best, self._stale = self.index + 1, 0, math.inf, 0
        self._cut = False

    def state_dict(self) -> dict[str, Any]:
        """JSON-serialisable state."""
        best = None if math.isinf(self._best) else self._best
        return {"index": self.index, "steps": self.steps, "best": best, "stale": self._stale}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore `state_dict`."""
        self.index, self.steps, self._stale = state["index"], state["steps"], state["stale"]
        self._best = math.inf if state["best"] is None else state["best"]
