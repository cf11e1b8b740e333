"""Learners as actors: two equal one, and a lost one costs the way to the last checkpoint."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tiny_runs import assert_each_example_once_an_epoch, reports_of
from watched import WatchedRoles

from rss_rl.config import RunConfig
from rss_rl.errors import LearnerError, ResourceError
from rss_rl.runs.checkpoint import load_checkpoint
from rss_rl.training.attempts import LearnersLost
from rss_rl.training.run import train

pytestmark = pytest.mark.usefixtures("shared_ray")
SAMPLERS = {"backend": "ray", "actors": 1}


def test_two_learners_are_one(
    tiny: Callable[..., RunConfig], reference_run: Path, tmp_path: Path
) -> None:
    """Over 50 updates with dropout, in float32, at a rate that does not amplify rounding.

    Batches are bounded, and both begin with the policy of another run.
    """
    steps = {"warm-up": 15, "frozen": 10, "co-train": 25}
    base = tiny()
    phases = [p.model_dump() | {"steps": steps[p.name]} for p in base.phases]
    adam = {"learning_rate": 1e-3, "eps": 1e-4}
    common = {
        "phases": phases,
        "evaluation": {"all_tokens": False, "every": 50},
        "batch_size": 15,  # odd, so that the learners' shards differ in size
        "batch_tokens": 80,
        "model": {"dropout": 0.3},
        "policy": {"from_run": str(reference_run)},
    }
    learner = {"supervised": adam, "policy": adam, "threads": 1, "weight_average": 0.9}
    one = tiny(**common, learner=learner)
    two = tiny(**common, learner=learner | {"actors": 2}, sampler=SAMPLERS)
    for _ in train(one, tmp_path / "one"):
        pass
    for _ in train(two, tmp_path / "two", roles=WatchedRoles()):
        pass
    expected = load_checkpoint(tmp_path / "one", "latest")
    found = load_checkpoint(tmp_path / "two", "latest")
    assert expected.step == found.step == 50
    for name, value in expected.tensors.items():
        np.testing.assert_allclose(found.tensors[name], value, atol=1e-5, err_msg=name)


def test_learners_that_have_no_room_are_refused(
    tiny: Callable[..., RunConfig], tmp_path: Path
) -> None:
    config = tiny(sampler=SAMPLERS, learner={"actors": 2}, model={"hidden": 10**7})
    with pytest.raises(ResourceError, match=r"not enough memory for a learner.*model\.hidden"):
        list(train(config, tmp_path / "run", roles=WatchedRoles()))


def test_a_killed_learner(tiny: Callable[..., RunConfig], tmp_path: Path) -> None:
    config = tiny(sampler=SAMPLERS, learner={"actors": 2}, evaluation={"all_tokens": False})
    roles, events, killed = WatchedRoles(), [], False
    for event in train(config, tmp_path / "run", roles=roles):
        events.append(event)
        if not killed and len(reports_of(events)) == 14:
            assert roles.learners is not None
            os.kill(roles.learners._processes[0].pid, signal.SIGKILL)
            killed = True
    lost = [event for event in events if isinstance(event, LearnersLost)]
    assert len(lost) == 1
    assert "learner 0 (process" in str(lost[0].error)
    assert "died" in str(lost[0].error)
    reports = reports_of(events)
    assert_each_example_once_an_epoch(reports)


def test_no_room_for_learners(tiny: Callable[..., RunConfig], tmp_path: Path) -> None:
    config = tiny(sampler=SAMPLERS, learner={"actors": 2, "threads": 50, "start_timeout_s": 2})
    with pytest.raises(LearnerError, match=r"no room for 2 learners of .*CPU.*learner\.actors"):
        list(train(config, tmp_path / "run", roles=WatchedRoles()))
