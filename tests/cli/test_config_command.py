"""`rss-rl config` shows what would run, in a form that reads back equal."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from invoking import invoke

from rss_rl.cli.config import documented_yaml
from rss_rl.config import RunConfig, load_config, parse_config
from rss_rl.packaged import find_config, packaged_configs
from rss_rl.runs.run_directory import RunDirectory


def show(*arguments: str) -> str:
    result = invoke(["config", *arguments])
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.mark.parametrize("name", packaged_configs())
def test_what_is_shown_reads_back_equal(name: str) -> None:
    config = load_config(find_config(name))
    assert parse_config(yaml.safe_load(documented_yaml(config)), where="test") == config


@pytest.mark.parametrize("text", ["yes", "null", "12", "a: b", "a # b", "# a", "it's", "-", "é"])
def test_awkward_strings_and_numbers_read_back_equal(text: str) -> None:
    phases = (
        {"name": "first", "policy": True, "steps": 1},
        {"name": text, "policy": True, "patience": 2},
    )
    tree = {"data": text, "phases": phases, "learner": {"supervised": {"eps": 1e-12}}}
    config = parse_config(tree, where="test")
    shown = yaml.safe_load(documented_yaml(config))
    assert shown["learner"]["supervised"]["eps"] == 1e-12  # a number for any YAML reader
    assert parse_config(shown, where="test") == config


def test_overrides_are_shown() -> None:
    text = show("show", "demo", "seed=7", "reward.sparsity_cost=0.25")
    assert yaml.safe_load(text)["seed"] == 7
    assert yaml.safe_load(text)["reward"]["sparsity_cost"] == 0.25


def test_without_a_name_every_key_is_documented() -> None:
    shown = yaml.safe_load(show("show"))
    assert isinstance(parse_config(shown, where="test"), RunConfig)
    assert shown["policy"]["options"]["hidden"] == 300
    assert list(shown) == list(RunConfig.model_fields)


def test_the_shipped_ones_are_listed() -> None:
    lines = show("list").splitlines()
    assert [line.split()[0] for line in lines] == packaged_configs()
    assert all(len(line.split()) > 2 for line in lines)


def test_only_what_differs_is_listed(tmp_path: Path) -> None:
    config = load_config(find_config("own_long"), ["seed=3", "data=some"]).model_dump(mode="json")
    with RunDirectory.create(tmp_path / "run", config):
        rows = [
            line.split() for line in show("diff", "own_long", str(tmp_path / "run")).splitlines()
        ]
    assert [row for row in rows if row[0] != "setting"] == [
        ["data", "prepared/own", "some"],
        ["seed", "0", "3"],
    ]
    rows = [line.split() for line in show("diff", "own", "own_phrases").splitlines()]
    assert ["policy.name", "rss", "smooth"] in rows
    assert ["policy.options.within", "-", "text"] in rows
