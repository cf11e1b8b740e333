"""Policies and estimators in a configuration: in this form and in that of earlier versions."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from rss_rl.components import component_names
from rss_rl.config import RunConfig, load_config, parse_config
from rss_rl.config.migration import _say
from rss_rl.errors import ConfigError

LEARNS = {"name": "a", "policy": True, "steps": 3}
IDLE = {"name": "a", "supervised": True, "steps": 3}
RSS = {"hidden": 300, "shared": False, "context": "none", "pool": "mean"} | {
    "initial_probability": 0.5
}
FLAT = {
    "hidden": 100,
    "shared": True,
    "context": "none",
    "cell": "gru",
    "initial_probability": 0.8,
}
"""The section as b9a4141 writes it, beside name, options and reads."""
LATER = {"context": "none", "initial_probability": 0.8}
"""Of these, what most policies have as options."""
OLD_LEARNER = {
    "baseline": "moving-average",
    "baseline_momentum": 0.9,
    "correction": "truncated-token",
    "ratio_max": 3.0,
    "ratio_clip": 0.1,
}


def parsed(phase: dict[str, Any], **sections: Any) -> RunConfig:
    return parse_config({"data": "some", "phases": [phase], **sections}, where="old.json")


@pytest.mark.parametrize(
    ("name", "own", "wanted"),
    [
        ("rss", {"temperature": 0.5}, {**LATER, "even": False}),
        ("gumbel", {"temperature": 0.5}, {**LATER, "even": False}),
        ("hardkuma", {"low": -0.2}, {**LATER, "high": 1.1}),
        ("top-k", {"share": 0.3}, {"context": "none", "tokens": None, "temperature": 1.0}),
        ("iterative", {}, {"cell": "gru", "initial_probability": 0.8}),
    ],
)
def test_old_keys_of_a_policy_become_its_options(
    name: str, own: dict[str, Any], wanted: dict[str, Any]
) -> None:
    policy = parsed(LEARNS, policy={"name": name, "options": own, "reads": "example", **FLAT})
    assert (policy.policy.name, policy.policy.reads) == (name, "example")
    newer = {} if name == "iterative" else {"pool": "mean"}
    assert policy.policy.options == {"hidden": 100, "shared": True} | newer | own | wanted


def test_old_keys_of_policies_that_learn_nothing() -> None:
    old = {**FLAT, "initial_probability": 0.3}
    assert parsed(IDLE, policy={"name": "bernoulli", **old}).policy.options == {"probability": 0.3}
    assert parsed(IDLE, policy={"name": "select-all", **old}).policy.options == {}


def test_old_keys_without_a_name_are_those_of_the_default() -> None:
    policy = parsed(LEARNS, policy={"hidden": 7, "context": "lstm"}).policy
    assert (policy.name, policy.options["hidden"], policy.options["context"]) == ("rss", 7, "lstm")


@pytest.mark.parametrize("name", component_names("estimator"))
def test_old_keys_of_an_estimator_become_its_options(name: str) -> None:
    config = parsed(
        LEARNS,
        policy={"name": "rss", **FLAT},
        learner={"estimator": name, "entropy_cost": 0.1, **OLD_LEARNER},
        sampler={"selections": 2},
    )
    assert (config.estimator.name, config.learner.entropy_cost) == (name, 0.1)
    has = {
        "reinforce": set(OLD_LEARNER) - {"ratio_clip"},
        "ppo-clip": {"baseline", "baseline_momentum", "ratio_clip"},
    }.get(name, set())
    assert config.estimator.options == {key: OLD_LEARNER[key] for key in has}


def test_old_keys_without_an_estimator_are_those_of_the_one_that_fits() -> None:
    by_rewards = parsed(LEARNS, learner={"baseline": "none"})
    assert by_rewards.estimator.name == "reinforce"
    assert by_rewards.estimator.options["baseline"] == "none"
    for policy in ({"name": "gumbel"}, {"name": "top-k", "options": {"tokens": 2}}):
        through_gates = parsed(LEARNS, learner={"baseline": "none"}, policy=policy)
        assert through_gates.learner.estimator is None
        assert through_gates.estimator.name == "pathwise"


def test_what_was_moved_is_said(caplog: pytest.LogCaptureFixture) -> None:
    _say.cache_clear()  # it is said once a process
    with caplog.at_level(logging.INFO, "rss_rl.config"):
        parsed(LEARNS, policy={"hidden": 8, "cell": "rnn"}, learner={"baseline": "none"})
    (record,) = caplog.records
    assert record.getMessage() == (
        "old.json: of an earlier version; keys read as options of components: 2, without effect: 1"
    )


def test_old_overrides_are_read(tmp_path: Path) -> None:
    path = tmp_path / "own.yaml"
    path.write_text("data: some\nphases: [{name: a, policy: true, steps: 3}]\n")
    overrides = ["policy.hidden=8", "policy.name=iterative", "policy.cell=gru"]
    config = load_config(path, [*overrides, "learner.estimator=ppo-clip", "learner.ratio_clip=.1"])
    assert config.policy.options["hidden"] == 8
    assert config.policy.options["cell"] == "gru"
    assert config.estimator.options["ratio_clip"] == 0.1
    again = parse_config(config.model_dump(mode="json"), where="again")
    assert again == config


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
        ({"policy": "top-k"}, "tokens=None, share=None: give either"),
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
                "policy": {"name": "top-k", "options": {"tokens": 2}},
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
