from __future__ import annotations

import re
import shlex
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest
from invoking import Result, invoke

from rss_rl import components
from rss_rl.components import KINDS, Kind, component_names, describe, find_component
from rss_rl.config import load_config
from rss_rl.packaged import find_config


def run(*words: str) -> Result:
    return invoke(["components", *words])


def test_the_kinds_with_what_is_installed() -> None:
    _, *rows = run().output.splitlines()
    assert [row.split()[0] for row in rows] == [spec.plural for spec in KINDS.values()]
    assert all(int(row.split()[1]) for row in rows)


@pytest.mark.parametrize("kind", list(KINDS))
def test_all_of_a_kind_and_each_of_them(kind: Kind) -> None:
    shown = run(KINDS[kind].plural).output
    assert "cannot be used" not in shown
    for name in component_names(kind):
        assert f"\n{name} " in shown
        one = run(KINDS[kind].plural, name)
        assert one.exit_code == 0, one.output
        assert find_component(kind, name).help in one.output
        assert "package: rss-rl " in one.output


def test_one_with_its_options() -> None:
    text = " ".join(run("policies", "rss").output.replace("'", "").split())
    for words in ("learns: has parameters", "example: policy=rss", "hidden: 300"):
        assert words in text
    assert "select-all" in run("policies", "select-all").output
    assert "pretrained: null" in run("reward_models", "blackbox").output
    assert "Required." in run("reward_models", "blackbox").output
    assert "Says hello" in run("encoders", "plugged:GREETING").output


@pytest.mark.parametrize(
    ("kind", "name"),
    [("encoder", "cnn"), ("policy", "rss"), ("encoder", "plugged:GREETING")],
)
def test_what_it_says_to_write_is_a_configuration(kind: Kind, name: str) -> None:
    shown = describe(find_component(kind, name), name)
    found: Any = load_config(find_config("demo"), [shown["example"]])
    for key in shown["slot"].split("."):
        found = getattr(found, key)
    assert found.name == name
    assert list(found.options) == list(shown["options"])


def test_a_source_is_named_in_a_command(tmp_path: Path) -> None:
    shown = run("sources", "cr").output
    assert "needs: --from FOLDER" in shown
    assert "example: rss-rl data prepare cr --out DIR\n" in shown
    [made] = re.findall("example: rss-rl (.*)", run("sources", "planted").output)
    words = shlex.split(made)
    few = [word for split in ("train", "dev", "test") for word in ("--option", f"{split}=4")]
    words[-1] = str(tmp_path / "out")
    assert invoke([*words, *few]).exit_code == 0


def test_a_broken_plugin_is_listed_with_its_error(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = EntryPoint("broken", "nowhere_at_all:X", "rss_rl.encoders")
    whole = {**components._installed("encoder"), "broken": broken}
    monkeypatch.setattr(components, "_installed", lambda kind: whole)
    text = " ".join(run("encoders").output.split())
    assert "broken cannot be used" in text
    assert "resan" in text
