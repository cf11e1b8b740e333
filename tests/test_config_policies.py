"""Policies and estimators in a configuration."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rss_rl.config import RunConfig, load_config, parse_config
from rss_rl.errors import ConfigError

LEARNS = {"name": "a", "policy": True, "steps": 3}


def parsed(phase: dict[str, Any], **sections: Any) -> RunConfig:
    return parse_config({"data": "some", "phases": [phase], **sections}, where="test")


def test_another_name_keeps_the_options_that_it_has(tmp_path: Path) -> None:
    path = tmp_path / "own.yaml"
    path.write_text(
        "data: some\nphases: [{name: a, policy: true, steps: 3}]\n"
        "policy: {name: rss, options: {hidden: 9, temperature: 0.5}}\n"
        "learner: {estimator: {name: reinforce, options: {baseline: none, ratio_max: 4.0}}}\n"
    )
    config = load_config(path, ["policy.name=iterative", "learner.estimator=ppo-clip"])
    assert config.policy.options == {
        "hidden": 9,
        "shared": False,
        "cell": "rnn",
        "initial_probability": 0.5,
    }
    assert config.estimator.options["baseline"] == "none"
    assert "ratio_max" not in config.estimator.options


@pytest.mark.parametrize(
    ("sections", "wanted"),
    [
        (
            {"policy": "iterativ"},
            "policy.name: unknown policy 'iterativ'; did you mean 'iterative'",
        ),
        ({"policy": {"options": {"hiden": 3}}}, "unknown option 'hiden'; did you mean 'hidden'"),
        ({"policy": {"options": {"hidden": 0}}}, "option hidden: .*greater than or equal to 1"),
        ({"policy": {"nam": "rss"}}, "unknown key 'policy.nam'; did you mean 'name'"),
        ({"policy": "top-k"}, "option share: Field required"),
        (
            {"learner": {"estimator": "reinfoce"}},
            "learner.estimator.name: unknown estimator",
        ),
        (
            {"learner": {"estimator": {"name": "ppo-clip", "options": {"ratio": 0.1}}}},
            "unknown option 'ratio'",
        ),
        ({"policy": "os:system"}, "opening the file would import that code"),
        ({"policy": "iterative", "learner": {"estimator": "pathwise"}}, "policy with gates"),
        ({"policy": "bernoulli", "reward": {"target_share": 0.3}}, "nothing to learn"),
        (
            {
                "policy": {"name": "top-k", "options": {"share": 0.4}},
                "reward": {"target_share": 0.3},
            },
            "does not declare that it keeps those",
        ),
        ({"reward": {"share_schedule": 0.5}}, "leads to target_share, which is not set"),
        ({"policy": {"name": "smooth", "options": {"width": 20.0}}}, "less than 16"),
    ],
)
def test_what_does_not_fit_names_what_to_change(sections: dict[str, Any], wanted: str) -> None:
    with pytest.raises(ConfigError, match=wanted):
        parsed(LEARNS, **sections)
