"""check_metric passes what keeps its promises, and finds each planted fault."""

from __future__ import annotations

from typing import Any

import numpy as np
import plugged_rewards
import pytest

from rss_rl.components import Component, Measure, component_names, find_component
from rss_rl.errors import ComponentError
from rss_rl.testing import check_metric
from rss_rl.types import LabelSpec

TASKS = {
    "classes": LabelSpec("classes", ("no", "maybe", "yes")),
    "score": LabelSpec("score", low=1.0, high=5.0),
    "sentence": LabelSpec("sentence"),
    "candidate": LabelSpec("candidate"),
}


@pytest.mark.parametrize("name", component_names("metric"))
@pytest.mark.parametrize("task", list(TASKS))
def test_the_installed_ones_keep_their_promises(name: str, task: str) -> None:
    component = find_component("metric", name)
    kinds = component.all_capabilities() & set(TASKS)
    if not kinds or task in kinds:
        check_metric(component, labels=TASKS[task], sentences=1 + TASKS[task].chooses)


def test_a_plugged_one_keeps_its_promises() -> None:
    check_metric(plugged_rewards.LONGEST)


class Mean:
    """The mean loss; each fault below changes one thing."""

    names: Any = ("mean",)

    def __init__(self) -> None:
        self.sum, self.count = 0.0, 0

    def add(self, scored: Any) -> None:
        self.sum += float(scored.losses.astype(np.float64).sum())
        self.count += len(scored.losses)

    def result(self) -> dict[str, Any]:
        return {"mean": self.sum / self.count} if self.count else {}


class Nameless(Mean):
    names = ()


class Extra(Mean):
    def result(self) -> dict[str, Any]:
        return {**super().result(), "median": 0.0}


class MeanOfMeans(Mean):
    def add(self, scored: Any) -> None:
        self.sum, self.count = self.sum + float(scored.losses.mean()), self.count + 1


class FirstCounts(Mean):
    def add(self, scored: Any) -> None:
        if not self.count:
            self.sum = float(scored.losses[0])
        self.count = 1


class Remembers(Mean):
    everything: list[float] = []  # noqa: RUF012

    def add(self, scored: Any) -> None:
        self.everything.extend(scored.losses.tolist())

    def result(self) -> dict[str, Any]:
        return {"mean": float(np.max(self.everything) * len(self.everything))}


class NotFinite(Mean):
    def result(self) -> dict[str, Any]:
        return {"mean": float("nan")}


class NoNumber(Mean):
    def result(self) -> dict[str, Any]:
        return {"mean": np.float32(1.0)}


class Silent(Mean):
    def result(self) -> dict[str, Any]:
        return {}


class FailsWithout(Mean):
    def result(self) -> dict[str, Any]:
        return {"mean": self.sum / self.count}


class Changes(Mean):
    def add(self, scored: Any) -> None:
        super().add(scored)
        scored.losses[:] = 0.0


class Forgets(Mean):
    def result(self) -> dict[str, Any]:
        found = super().result()
        self.sum = 0.0
        return found


class Unpicklable(Mean):
    def __init__(self) -> None:
        super().__init__()
        self.rule = lambda: 0


def test_the_sound_one_passes() -> None:
    check_metric(Mean)


def test_measures_describe_every_name() -> None:
    component = Component(
        kind="metric",
        name="mean",
        help="The mean loss.",
        build=lambda setup, options: Mean(),
        measures=(Measure("median", "median", "the median loss"),),
    )
    with pytest.raises(ComponentError, match="has the names mean, which"):
        check_metric(component)


@pytest.mark.parametrize(
    ("kind", "fragment"),
    [
        (Nameless, "has the names"),
        (Extra, "not in its names"),
        (MeanOfMeans, "depends on the batches"),
        (FirstCounts, "depends on the"),
        (Remembers, "depends on|remembers"),
        (NotFinite, "reports nan"),
        (NoNumber, "reports np.float32"),
        (Silent, "reports nothing"),
        (FailsWithout, "cannot compute its result"),
        (Changes, "changes what it is given"),
        (Forgets, "when called again"),
        (Unpicklable, "cannot be pickled"),
    ],
)
def test_a_planted_fault_is_found(kind: Any, fragment: str) -> None:
    with pytest.raises(ComponentError, match=fragment):
        check_metric(kind)
