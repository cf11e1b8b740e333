"""Phases as data: who learns when, how a phase ends, state round trip."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rss_rl.config import PhaseConfig
from rss_rl.learners.phases import PhaseSchedule, Turn


def phase(**settings: Any) -> PhaseConfig:
    given = {"name": "some", "supervised": True, "steps": 3} | settings
    return PhaseConfig(**given)


def walk(schedule: PhaseSchedule, updates: int) -> list[Turn]:
    turns = []
    for _ in range(updates):
        turns.append(schedule.turn())
        schedule.count()
    return turns


@pytest.mark.parametrize(
    ("settings", "turn"),
    [
        ({"selection": "all"}, Turn(supervised=True, policy=False, sampled=False)),
        ({}, Turn(supervised=True, policy=False, sampled=True)),
        ({"supervised": False, "policy": True}, Turn(supervised=False, policy=True, sampled=True)),
        ({"policy": True}, Turn(supervised=True, policy=True, sampled=True)),
        (
            {"selection": "thresholded"},
            Turn(supervised=True, policy=False, sampled=False, thresholded=True),
        ),
        (
            {"selection": "uniform_share"},
            Turn(supervised=True, policy=False, sampled=False, random_share=1.0),
        ),
        (
            {"policy": True, "mixed_share": 0.25},
            Turn(supervised=True, policy=True, sampled=True, random_share=0.25),
        ),
    ],
    ids=["warm-up", "fixed policy", "frozen", "co-train", "settle", "parts", "mixed"],
)
def test_who_learns(settings: dict[str, Any], turn: Turn) -> None:
    assert walk(PhaseSchedule([phase(**settings)]), 3) == [turn] * 3


def test_learners_take_turns() -> None:
    schedule = PhaseSchedule([phase(policy=True, alternate_every=2, steps=9)])
    turns = walk(schedule, 7)
    assert [t.supervised for t in turns] == [True, True, False, False, True, True, False]
    assert [t.policy for t in turns] == [not t.supervised for t in turns]
    assert all(t.sampled for t in turns)


def test_a_phase_ends_at_its_steps() -> None:
    schedule = PhaseSchedule([phase(steps=2), phase(name="next", steps=1)])
    for expected in (False, False, True):
        assert schedule.phase_over is expected
        schedule.count()
    assert not schedule.is_last
    schedule.advance()
    assert (schedule.phase.name, schedule.steps, schedule.phase_over) == ("next", 0, False)
    assert schedule.is_last
    assert not schedule.finished
    schedule.advance()
    assert schedule.finished


def test_a_phase_ends_at_its_plateau() -> None:
    schedule = PhaseSchedule([phase(steps=None, patience=2)])
    seen = []
    for loss in (3.0, 2.0, 2.5, 1.0, 1.0, 1.5):
        best = schedule.observe(loss)
        seen.append((best, schedule.phase_over))
    assert seen == [
        (True, False), (True, False), (False, False), (True, False), (False, False), (False, True),
    ]  # fmt: skip


def test_a_loss_that_is_no_number_is_never_the_best() -> None:
    schedule = PhaseSchedule([phase(steps=None, patience=2)])
    assert not schedule.observe(float("nan"))
    assert schedule.observe(5.0)


def test_each_phase_has_a_best_of_its_own() -> None:
    schedule = PhaseSchedule([phase(steps=None, patience=2)] * 2)
    schedule.observe(1.0)
    schedule.observe(2.0)
    schedule.advance()
    assert schedule.observe(5.0)
    assert not schedule.observe(6.0)
    assert not schedule.phase_over


@pytest.mark.parametrize("observed", [[], [2.0], [2.0, 3.0], [-0.1, 0.3]])
def test_state_round_trip(observed: list[float]) -> None:
    phases = [phase(steps=1), phase(policy=True, alternate_every=2, steps=None, patience=3)]
    schedule = PhaseSchedule(phases)
    schedule.advance()
    walk(schedule, 3)
    for loss in observed:
        schedule.observe(loss)
    again = PhaseSchedule(phases)
    again.load_state_dict(json.loads(json.dumps(schedule.state_dict(), allow_nan=False)))
    for loss in (2.5, 1.5, 2.5, 2.5, 2.5):
        assert again.turn() == schedule.turn()
        assert again.observe(loss) == schedule.observe(loss)
        assert again.phase_over == schedule.phase_over
        schedule.count()
        again.count()
    assert again.state_dict() == schedule.state_dict()
    assert again.state_dict() != PhaseSchedule(phases).state_dict()
