from __future__ import annotations

import json
from importlib.metadata import EntryPoint

import pytest
from typer.testing import CliRunner, Result

from rss_rl import components
from rss_rl.cli.main import app
from rss_rl.components import KINDS


def run(*words: str) -> Result:
    return CliRunner().invoke(app, ["components", *words])


def test_the_kinds_with_what_is_installed() -> None:
    rows = json.loads(run("--json").output)
    assert [row["kind"] for row in rows] == [spec.plural for spec in KINDS.values()]
    assert all(row["installed"] for row in rows)


@pytest.mark.parametrize("kind", [spec.plural for spec in KINDS.values()])
def test_all_of_a_kind_and_each_of_them(kind: str) -> None:
    rows = json.loads(run(kind, "--json").output)
    assert rows
    shown = run(kind).output
    for row in rows:
        assert row["package"].startswith("rss-rl ")
        assert row["help"]
        assert "cannot be used" not in row["help"]
        assert row["name"] in shown
        one = run(kind, row["name"])
        assert one.exit_code == 0, one.output
        assert row["help"] in one.output


def test_one_with_its_options() -> None:
    text = " ".join(run("policies", "rss").output.split())
    expected = ("policy: rss", "learns: has parameters", "hidden int 300", "{hidden: 300")
    for words in expected:
        assert words in text
    assert "It has no options" in run("policies", "select-all").output
    assert "Says hello" in run("metrics", "plugged:GREETING").output


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("polices",), "did you mean 'policies'"),
        (("policies", "rs"), "did you mean 'rss'"),
        (("policies", "os:system"), "not a component"),
    ],
)
def test_wrong_names_are_explained(words: tuple[str, ...], message: str) -> None:
    result = run(*words)
    assert result.exit_code == 2
    assert message in result.stderr


def test_a_broken_plugin_is_listed_with_its_error(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = EntryPoint("broken", "nowhere_at_all:X", "rss_rl.metrics")
    whole = {**components._installed("metric"), "broken": broken}
    monkeypatch.setattr(components, "_installed", lambda kind: whole)
    text = " ".join(run("metrics").output.split())
    assert "broken cannot be used" in text
    assert "accuracy" in text
