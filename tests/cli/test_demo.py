"""`rss-rl demo --real`, cut short: what it prepares, says and leaves."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from invoking import Result, invoke

pytestmark = pytest.mark.usefixtures("no_charts")
BRIEF = ["phases.0.steps=4", "phases.1.steps=2", "phases.2.steps=4", "phases.3.steps=4"]


def demo(*more: str) -> Result:
    return invoke(["demo", "--real", "model.attention=eager", *BRIEF, *more])


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    run = tmp_path_factory.mktemp("demo") / "run"
    result = demo("--out", str(run), "--seed", "3")
    assert result.exit_code == 0, result.output
    return run, " ".join(result.stdout.split())


def test_it_ends_with_a_page_to_open(ran: tuple[Path, str]) -> None:
    run, said = ran
    page = run / "report.html"
    assert said.endswith(str(page))
    assert "15% (asked for)" in page.read_text(encoding="utf-8")


def test_it_trains_the_shipped_configuration(ran: tuple[Path, str]) -> None:
    config = json.loads((ran[0] / "config.json").read_text())["config"]
    assert (config["seed"], config["reward"]["target_share"]) == (3, 0.15)
    assert config["data"] == str(ran[0].with_name("run-data").resolve())


def test_another_run_is_not_replaced(ran: tuple[Path, str], tmp_path: Path) -> None:
    other = tmp_path / "run"
    other.mkdir()
    (other / "config.json").write_text((ran[0] / "config.json").read_text())
    result = demo("--out", str(other))
    assert result.exit_code == 2
    assert "holds a run that is not a demo" in result.stderr
