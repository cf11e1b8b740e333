"""Policies and policy updates in a configuration."""

from __future__ import annotations

from pathlib import Path

import pytest

from rss_rl.config import load_config, parse_config
from rss_rl.errors import ConfigError


def test_another_name_keeps_the_options_that_it_has(tmp_path: Path) -> None:
    path = tmp_path / "own.yaml"
    path.write_text(
        "data: some\nphases: [{name: a, policy: true, steps: 3}]\n"
        "policy: {name: rss, options: {hidden: 9, temperature: 0.5}}\n"
        "learner: {policy_update: {name: reinforce, options: {baseline: none, ratio_max: 4.0}}}\n"
    )
    config = load_config(path, ["policy.name=iterative", "learner.policy_update=ppo-clip"])
    assert config.policy.options == {
        "hidden": 9,
        "shared": False,
        "cell": "rnn",
        "initial_probability": 0.5,
    }
    assert config.policy_update.options["baseline"] == "none"
    assert "ratio_max" not in config.policy_update.options


def test_a_file_cannot_name_code() -> None:
    phases = [{"name": "a", "policy": True, "steps": 3}]
    with pytest.raises(ConfigError, match="opening the file would import that code"):
        parse_config({"data": "some", "phases": phases, "policy": "os:system"}, where="test")
