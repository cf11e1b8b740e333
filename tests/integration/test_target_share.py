"""A target share: reached; one lambda whoever samples; and no other after a kill."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow.compute as pc
import pytest
from ray_nodes import own_ray
from tiny_runs import Outcome, TinySource
from watched import WatchedRoles

from rss_rl.config import RunConfig
from rss_rl.data.prepare import prepare
from rss_rl.errors import ConfigError
from rss_rl.logs.metrics import read_metrics
from rss_rl.runs.checkpoint import load_checkpoint
from rss_rl.training.run import Finished, train
from rss_rl.training.session import UpdateReport

KILL_AT = Path(__file__).with_name("kill_at.py")
STEERED = {"target_share": 0.4}
ALONE = {"all_tokens": False, "every": 4}


@pytest.fixture(scope="module")
def steered(tiny: Callable[..., RunConfig], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny run with a target share, in one process and never stopped."""
    path = tmp_path_factory.mktemp("steered") / "run"
    for _ in train(tiny(reward=STEERED), path):
        pass
    return path


def test_lambda_moves_and_is_reported(steered: Path) -> None:
    table = read_metrics(steered)
    tags = ("reward/lambda", "selection/share_error", "selection/margin_heads")
    found = {t: table.filter(pc.equal(table["tag"], t))["value"].to_pylist() for t in tags}
    lengths = {len(values) for values in found.values()}
    assert len(lengths) == 1
    assert len(set(found["reward/lambda"])) > 5
    state = load_checkpoint(steered, "latest").state["session"]["share"]
    assert state.keys() >= {"roles", "error"}


def test_killed(tiny: Callable[..., RunConfig], steered: Path, tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    config.write_text(tiny(reward=STEERED).model_dump_json())
    kills = ("update:12", "finish")
    command = [sys.executable, str(KILL_AT), str(config), str(tmp_path / "run"), *kills]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert ended.returncode == 0, ended.stderr
    Outcome.read(tmp_path / "run").assert_equals(Outcome.read(steered))


@pytest.mark.slow  # the learner alone steers; test_samplers proves two samplers to be as one
@pytest.mark.timeout(100)
def test_two_samplers_are_as_one(
    tiny: Callable[..., RunConfig], steered: Path, tmp_path: Path
) -> None:
    with own_ray(4):
        config = tiny(reward=STEERED, sampler={"backend": "ray", "actors": 2})
        for _ in train(config, tmp_path / "run", roles=WatchedRoles()):
            pass
    Outcome.read(tmp_path / "run").assert_equals(Outcome.read(steered))


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Enough words and rows for two points of a share to be more than one word, or chance."""
    path = tmp_path_factory.mktemp("wide") / "prepared"
    rows = {"train": 480, "dev": 1920, "test": 1920}
    prepare(TinySource(rows, tuple(f"word{n}" for n in range(200))), path, dim=6, batch_rows=240)
    return path


@pytest.mark.parametrize(
    ("target", "steps"), [(0.25, 260), pytest.param(0.6, 400, marks=pytest.mark.slow)]
)
def test_reached(
    target: float, steps: int, wide: Path, tiny: Callable[..., RunConfig], tmp_path: Path
) -> None:
    """On rows that no choice was made by too, and by both roles."""
    phases = [
        {"name": "warm-up", "supervised": True, "selection": "all", "steps": 20},
        {"name": "co-train", "supervised": True, "policy": True, "steps": steps},
    ]
    config = tiny(
        data=str(wide),
        batch_size=32,
        phases=phases,
        reward={"target_share": target},
        evaluation={"all_tokens": False, "every": 20},
        checkpoint={"every": 100},
        learner={"policy": {"learning_rate": 0.003}},
    )
    events = list(train(config, tmp_path / "run"))
    assert isinstance(events[-1], Finished)
    for scores in events[-1].report["splits"].values():
        found = scores["thresholded"]
        assert found["kept"] == pytest.approx(target, abs=0.02)
        assert min(found["heads_kept"], found["dependents_kept"]) > target / 4
    last = [e.scalars for e in events if isinstance(e, UpdateReport) and e.phase == "co-train"]
    settled = [scalars["selection/share_error"] for scalars in last[-60:]]
    assert sum(map(abs, settled)) / len(settled) < 0.05


@pytest.mark.parametrize(
    ("policy", "schedule"),
    [
        ("hardkuma", 0.0),
        pytest.param("rss", 0.2, marks=pytest.mark.slow),
    ],
)
def test_reached_by_others(
    policy: str, schedule: float, wide: Path, tiny: Callable[..., RunConfig], tmp_path: Path
) -> None:
    """Through gates, by HardKuma's own rule; and by way of a schedule."""
    phases = [
        {"name": "warm-up", "supervised": True, "selection": "uniform_share", "steps": 20},
        {"name": "co-train", "supervised": True, "policy": True, "steps": 200},
    ]
    config = tiny(
        data=str(wide),
        batch_size=32,
        model={"encoder": "source2token"},
        policy={"name": policy, "options": {"hidden": 8, "shared": True}},
        phases=phases,
        reward={"target_share": 0.3, "share_schedule": schedule},
        evaluation={"all_tokens": False, "every": 20},
        learner={"policy": {"learning_rate": 0.003}, "estimator": None},
    )
    events = list(train(config, tmp_path / "run"))
    assert isinstance(events[-1], Finished)
    for scores in events[-1].report["splits"].values():
        assert scores["thresholded"]["kept"] == pytest.approx(0.3, abs=0.03)
    table = read_metrics(tmp_path / "run")
    tag = "selection/thresholded_kept"
    kept = table.filter(pc.equal(table["tag"], tag))["value"].to_pylist()
    if schedule:
        assert sum(kept[10:30]) / 20 > 0.5  # on the way down


def test_a_target_that_a_policy_keeps_otherwise_is_refused(tiny: Callable[..., RunConfig]) -> None:
    """Top-k keeps as many as it was given."""
    with pytest.raises(ConfigError, match="one half"):
        tiny(reward=STEERED, policy={"name": "top-k", "options": {"tokens": 3}})


def test_a_target_without_a_policy_is_refused(tiny: Callable[..., RunConfig]) -> None:
    plain = [{"name": "all", "supervised": True, "selection": "all", "steps": 4}]
    with pytest.raises(ConfigError, match="steers a policy"):
        tiny(reward=STEERED, phases=plain)
