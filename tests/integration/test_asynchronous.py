"""Samplers that run ahead: the lag is what was asked for, every example is used once an epoch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from tiny_runs import Outcome, assert_each_example_once_an_epoch, reports_of

from rss_rl.cluster.roles import RayRoles
from rss_rl.config import RunConfig
from rss_rl.logs.metrics import read_metrics
from rss_rl.training.run import train


def test_in_one_process_the_lag_is_exact_and_the_run_repeats_to_the_bit(
    tiny: Callable[..., RunConfig], tmp_path: Path
) -> None:
    config = tiny(sampler={"max_policy_lag": 3}, evaluation={"all_tokens": False})
    reports = reports_of(train(config, tmp_path / "one"))
    assert_each_example_once_an_epoch(reports)
    frozen = [r.scalars["policy/lag"] for r in reports if r.phase == "frozen"]
    assert frozen == [0, 1, 2, 3, 3, 3, 3]  # an update's rollouts were asked for 3 updates before
    list(train(config, tmp_path / "two"))
    Outcome.read(tmp_path / "two").assert_equals(Outcome.read(tmp_path / "one"))


@pytest.mark.usefixtures("shared_ray")
def test_with_samplers_of_their_own(tiny: Callable[..., RunConfig], tmp_path: Path) -> None:
    samplers = {"backend": "ray", "actors": 2, "max_policy_lag": 4}
    config = tiny(sampler=samplers, evaluation={"all_tokens": False})
    reports = reports_of(train(config, tmp_path / "run", roles=RayRoles()))
    assert_each_example_once_an_epoch(reports)
    sampled = [r.scalars for r in reports if "policy/lag" in r.scalars]
    assert len(sampled) == 17
    assert 1 <= max(s["policy/lag_max"] for s in sampled) <= 4
    seen = Counter(row["tag"] for row in read_metrics(tmp_path / "run").to_pylist())
    for tag in ("learner/idle_share", "sampler/idle_share", "publish/duration_ms", "publish/bytes"):
        assert seen[tag] == 17
    for tag in ("pipeline/in_flight", "policy/lag_min"):
        assert seen[tag] == 17
    assert 0 <= sampled[-1]["sampler/idle_share"] <= 1
    assert 0 <= sampled[-1]["learner/idle_share"] <= 1
