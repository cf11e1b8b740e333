"""`rss-rl compare` says what may be said of runs, and writes it down."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from rss_rl.cli.main import app
from rss_rl.config import parse_config
from rss_rl.logs.metrics import MetricsWriter
from rss_rl.runs.run_directory import RunDirectory

PHASES = [{"name": "co-train", "supervised": True, "policy": True, "steps": 4}]


def config_of(seed: int, cost: float) -> dict[str, Any]:
    tree = {"data": "d", "seed": seed, "phases": PHASES, "reward": {"sparsity_cost": cost}}
    return parse_config(tree, where="test").model_dump(mode="json")


def leave_run(path: Path, seed: int, accuracy: float, cost: float) -> None:
    """A finished run, with a curve of two points."""
    config = config_of(seed, cost)
    scores = {"accuracy": accuracy, "kept": 0.25, "loss": 0.5}
    with RunDirectory.create(path, config) as run:
        run.write_report({"splits": {"test": {"thresholded": scores}}, "seed": seed})
    with MetricsWriter(path) as writer:
        for step in (2, 4):
            writer.scalars(step, {"dev/thresholded/accuracy": accuracy, "selection/kept": 0.3})


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("compare")
    for seed, noise in enumerate((0.0, 0.004, -0.003, -0.001)):
        leave_run(place / f"a{seed}", seed, 0.80 + noise, 0.02)
        leave_run(place / f"b{seed}", seed, 0.85 + 0.5 * noise, 0.5)
    return place


def compare(*arguments: object) -> str:
    result = CliRunner().invoke(app, ["compare", *map(str, arguments)])
    assert result.exit_code == 0, result.output
    return result.output


def test_everything(runs: Path, tmp_path: Path) -> None:
    chosen = sorted(runs.iterdir())
    said = compare(*chosen, "--out", tmp_path / "out")
    assert "reward.sparsity_cost" in said
    written = (tmp_path / "out" / "compare.md").read_text()
    assert "| reward.sparsity_cost | 0.02 | 0.5 |" in written
    assert "| A | 4 | 4 |" in written
    assert "| A | thresholded | 80.0% (0.3%) | 0.500 (0.000) | 25.0% (0.0%) |" in written
    assert "| B | accuracy | thresholded | 4 | +5.0% |" in written
    assert "better than A (p < 0.05, though the exact p cannot be below 0.125)" in written
    assert (tmp_path / "out" / "curves.png").read_bytes()[:4] == b"\x89PNG"
    assert compare(*chosen, "--markdown").strip() in written


def test_too_few_seeds(runs: Path) -> None:
    said = compare(runs / "a0", runs / "a1", runs / "b0", runs / "b1", "--markdown")
    assert "no claim: seeds in common: 2, at least 3 are needed" in said
    assert "better" not in said


def test_one_group(runs: Path) -> None:
    said = compare(runs / "a0", runs / "a1")
    assert "none" in said


def test_a_run_twice(runs: Path) -> None:
    result = CliRunner().invoke(app, ["compare", str(runs / "a0"), str(runs / "a0")])
    assert result.exit_code != 0
    assert "have the seed 0" in result.output


@pytest.fixture
def begun(tmp_path: Path) -> Path:
    """A run of a third group, not finished."""
    RunDirectory.create(tmp_path / "c0", config_of(0, 3.0)).close()
    return tmp_path / "c0"


def test_a_group_without_a_finished_run_is_named_and_the_others_are_tested(
    runs: Path, begun: Path
) -> None:
    both = [runs / f"{name}{seed}" for name in "ab" for seed in range(4)]
    for way in ([], ["--markdown"]):
        said = " ".join(compare(*both[:4], begun, *both[4:], *way).split())
        assert "Group B has no finished run, so no test. Finish one with rss-rl train" in said
        assert "better than A" in said


def test_without_a_finished_run_of_the_first_group_there_is_no_test(
    runs: Path, begun: Path
) -> None:
    for way in ([], ["--markdown"]):
        said = " ".join(compare(begun, runs / "a0", runs / "b0", *way).split())
        assert "Group A has no finished run, so no test: all others are compared with A." in said
        assert "verdict" not in said


def test_groups_without_a_metric_in_common_are_said_to_be_so(runs: Path) -> None:
    said = " ".join(compare(runs / "a0", runs / "b0", "--split", "dev").split())
    assert "share no metric of dev, so no test." in said
