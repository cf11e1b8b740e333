"""A frontier that was interrupted equals one that never was; what may be swept, and what not."""

from __future__ import annotations

import csv
import json
import signal
import subprocess
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from table_runs import PHASES, SETTINGS, wait_for_checkpoint
from tiny_runs import command_line
from typer.testing import CliRunner

from rss_rl.cli.main import app
from rss_rl.components import Component
from rss_rl.config import load_config
from rss_rl.errors import ConfigError
from rss_rl.policies.build import build_policy
from rss_rl.policies.rss import RSSOptions, RSSPolicy
from rss_rl.results.tables.frontier import Sweep, frontier_table, setting_of
from rss_rl.results.tables.plan import plan_runs

DEADLINE_S = 90
SWEEP = ("--shares", "0.3,0.6", "--policies", "rss,bernoulli", "--seeds", "1")

OTHERWISE = f"{__name__}:KEEPS_OTHERWISE"
KEEPS_OTHERWISE = Component(
    kind="policy",
    name="otherwise",
    help="Keeps by a rule of its own.",
    build=RSSPolicy,
    options=RSSOptions,
    capabilities=frozenset({"learns", "log_probs", "logits", "gates"}),
)
"""A policy that no share steers."""


def write_config(place: Path, data: Path) -> Path:
    tree: dict[str, object] = {"data": str(data), "phases": [PHASES[0], {**PHASES[1], "steps": 60}]}
    for key, value in SETTINGS.items():
        *sections, name = key.split(".")
        node: Any = tree
        for section in sections:
            node = node.setdefault(section, {})
        node[name] = value
    tree["policy"] = {"options": {"hidden": 8}}
    tree["learner"] = {"threads": 1}
    tree |= {"evaluation": {"all_tokens": False, "every": 30}, "checkpoint": {"every": 8}}
    path = place / "own.yaml"
    path.write_text(json.dumps(tree))
    return path


@pytest.fixture(scope="module")
def expected(prepared: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the frontier made in one go, in this process."""
    place = tmp_path_factory.mktemp("frontier")
    file = write_config(place, prepared)
    command = ["frontier", str(file), *SWEEP, "--out", str(place / "out")]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    return place / "out" / "own"


def test_files(expected: Path) -> None:
    rows = list(csv.DictReader(StringIO((expected / "frontier.csv").read_text())))
    assert [row["policy"] for row in rows] == ["rss"] * 2 + ["bernoulli"] * 2 + ["all tokens"]
    assert [float(row["asked"]) for row in rows[:4]] == pytest.approx([0.3, 0.6] * 2)
    assert all(row["runs"] == "1" for row in rows)
    assert rows[0]["lambda"]
    assert not rows[2]["lambda"]
    assert float(rows[2]["kept"]) == pytest.approx(0.3, abs=0.08)
    assert float(rows[4]["kept"]) == 1.0
    shown = (expected / "frontier.md").read_text()
    assert "| rss | share 0.3 |" in shown
    assert "| all tokens | - | 100.0 |" in shown
    assert (expected / "frontier.png").read_bytes()[:4] == b"\x89PNG"


@pytest.mark.slow  # test_tables runs a grid with several jobs, and one stopped by Ctrl-C
def test_several_at_a_time(
    expected: Path, prepared: Path, tmp_path: Path, processes: list[subprocess.Popen[str]]
) -> None:
    """Stopped by Ctrl-C in the middle, resumed, and the same to the bit."""
    config = write_config(tmp_path, prepared)
    command = ("frontier", config, *SWEEP, "--out", "out", "--jobs", "2")
    run = tmp_path / "out" / "own" / prepared.name / "rss-share-0.3" / "seed-0"
    processes.append(first := command_line(*command, cwd=tmp_path))
    wait_for_checkpoint(run, 4, first)
    first.send_signal(signal.SIGINT)
    _, err = first.communicate(timeout=DEADLINE_S)
    assert first.returncode == 130, err
    reports = list((tmp_path / "out" / "own").glob("*/*/*/report.json"))
    assert len(reports) < len(list(expected.glob("*/*/*/report.json")))
    assert not list((tmp_path / "out" / "own").glob(".stop-*"))
    processes.append(second := command_line(*command, cwd=tmp_path))
    out, err = second.communicate(timeout=DEADLINE_S)
    assert second.returncode == 0, out + err
    made = (tmp_path / "out" / "own" / "frontier.csv").read_text()
    assert made == (expected / "frontier.csv").read_text()


def test_options_go_to_the_policies_that_have_them(prepared: Path, tmp_path: Path) -> None:
    """An estimator stays behind that the policy without anything to learn has no use for."""
    file = write_config(tmp_path, prepared)
    overrides = ["policy.name=gumbel", "policy.options={temperature: 0.5, hidden: 6}"]
    overrides.append("learner.estimator=pathwise")
    base = load_config(file, overrides)
    found = frontier_table(str(file), overrides, base, Sweep(("gumbel", "hardkuma"), costs=(1.0,)))
    configs = {
        row.label: load_config(
            file, [*overrides, *(f"{k}={json.dumps(v)}" for k, v in row.settings.items())]
        )
        for row in found.rows
    }
    assert {config.policy.options["hidden"] for config in configs.values()} == {6}
    assert configs["gumbel, cost 1"].policy.options["temperature"] == 0.5
    assert configs["hardkuma, cost 1"].policy.options["low"] == -0.1
    random = frontier_table(str(file), overrides, base, Sweep(("bernoulli",), shares=(0.3,))).rows
    assert random[0].settings["learner.estimator"] is None


def test_sweeps_that_cannot_be(prepared: Path, tmp_path: Path) -> None:
    for wrong in ({}, {"shares": (1.5,)}, {"shares": (0.1,), "costs": (-1.0,)}):
        with pytest.raises(ConfigError):
            Sweep(("rss",), **wrong)
    base = load_config(write_config(tmp_path, prepared))
    with pytest.raises(ConfigError, match="learns from no cost"):
        frontier_table("own.yaml", [], base, Sweep(("bernoulli",), costs=(1.0,)))
    with pytest.raises(ConfigError, match=f"policy '{OTHERWISE}' does not support"):
        frontier_table("own.yaml", [], base, Sweep(("rss", OTHERWISE), shares=(0.3,)))
    with pytest.raises(ConfigError, match="no cost would be tried"):
        frontier_table("own.yaml", [], base, Sweep(("rss", "top-k"), shares=(0.3,), costs=(1.0,)))


def test_shares_alone_steer_gates_too(prepared: Path, tmp_path: Path) -> None:
    base = load_config(write_config(tmp_path, prepared))
    rows = frontier_table("own.yaml", [], base, Sweep(("hardkuma", "gumbel"), shares=(0.2,))).rows
    assert [row.settings.get("reward.target_share") for row in rows[:-1]] == [0.2, 0.2]


def test_costs_beside_shares_are_for_those_that_learn_through_gates(
    prepared: Path, tmp_path: Path
) -> None:
    base = load_config(write_config(tmp_path, prepared))
    sweep = Sweep(("rss", "hardkuma", "top-k", "gumbel"), shares=(0.2, 0.3), costs=(1.0,))
    rows = frontier_table("own.yaml", [], base, sweep).rows
    assert [setting_of(row) for row in rows[:-1]] == [
        *(("rss", 0.2), ("rss", 0.3), ("hardkuma", 1.0)),
        *(("top-k", 0.2), ("top-k", 0.3), ("gumbel", 1.0)),
    ]
    assert [row.settings.get("reward.target_share") for row in rows[:3]] == [0.2, 0.3, None]


@pytest.mark.parametrize("swept", [("--shares", "0.3"), ("--costs", "1")])
def test_a_policy_that_nothing_changes_is_refused_before_anything_runs(
    swept: tuple[str, str], prepared: Path, tmp_path: Path
) -> None:
    command = ["frontier", str(write_config(tmp_path, prepared)), *swept, "--policies"]
    result = CliRunner().invoke(
        app, [*command, "rss,select-all", "--out", str(tmp_path / "out")], env={"COLUMNS": "400"}
    )
    assert result.exit_code != 0
    said = " ".join(result.output.split())
    assert "--policies: policy 'select-all' has nothing to sweep" in said
    assert not (tmp_path / "out").exists()


def test_a_policy_with_a_budget_is_given_the_share(prepared: Path, tmp_path: Path) -> None:
    file = write_config(tmp_path, prepared)
    own = ["policy.name=top-k", "policy.options={tokens: 3, temperature: 0.5}"]
    for given, temperature in (([], 1.0), (own, 0.5)):
        base = load_config(file, given)
        sweep = Sweep(("top-k", "bernoulli"), shares=(0.3,), seeds=1)
        table = frontier_table(str(file), given, base, sweep)
        plan = plan_runs("own", table, tmp_path / "out")
        budget, random, _ = (run.config.policy.options for run in plan.runs)
        assert (budget["share"], budget["tokens"]) == (0.3, None)
        assert budget["temperature"] == temperature
        assert random == {"probability": pytest.approx(1 - 0.7**0.5)}
        assert [setting_of(row) for row in table.rows[:1]] == [("top-k", 0.3)]
        for run in plan.runs:
            build_policy(run.config.policy, 4, "relu")
    with pytest.raises(ConfigError, match="learns from no cost"):
        frontier_table(str(file), [], base, Sweep(("top-k",), costs=(1.0,)))
