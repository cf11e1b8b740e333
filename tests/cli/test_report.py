"""`rss-rl report` on the terminal, as Markdown and as CSV."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from invoking import invoke

from rss_rl.config import parse_config
from rss_rl.runs.run_directory import RunDirectory
from rss_rl.training.status_writer import RunProgress, StatusWriter
from rss_rl.training.trainer import Evaluated

PHASES = [{"name": "co-train", "supervised": True, "policy": True, "steps": 4}]
COSTS = {"steps": 4, "best_step": 4, "parameters": 9, "wall_seconds": 1, "examples_per_second": 1}


def leave_run(path: Path, seed: int, cost: float, accuracy: float | None, data: str = "d") -> None:
    tree = {"data": data, "seed": seed, "phases": PHASES, "reward": {"sparsity_cost": cost}}
    config = parse_config(tree, where="test").model_dump(mode="json")
    with RunDirectory.create(path, config) as run:
        if accuracy is not None:
            scores: dict[str, Any] = {"accuracy": accuracy, "kept": 0.25, "loss": 0.5}
            modes = {"thresholded": scores, "random": scores | {"accuracy": 0.5}}
            run.write_report({"splits": {"test": modes}, "seed": seed, **COSTS})


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two seeds, another cost with one run finished of two, and a run on other data."""
    monkeypatch.chdir(tmp_path)
    for name, *given in (
        ("a-0", 0, 0.1, 0.75),
        ("a-1", 1, 0.1, 0.25),
        ("b-0", 0, 1.0, 0.625),
        ("b-1", 1, 1.0, None),
        ("c-0", 0, 0.1, 0.125, "other"),
    ):
        leave_run(tmp_path / name, *given)
    return tmp_path


def printed(*arguments: str) -> str:
    found = invoke(["report", *arguments], env={"COLUMNS": "80"})
    assert found.exit_code == 0, found.output
    return found.output


def test_groups_stand_side_by_side(place: Path) -> None:
    lines = printed("a-0", "a-1", "b-0", "b-1").splitlines()
    rows = [line.split() for line in lines]
    assert ["1", "2", "of", "2", "a-0", "and", "1", "more"] in rows
    assert ["2", "1", "of", "2", "b-0", "and", "1", "more"] in rows
    assert ["reward.sparsity_cost", "0.1", "1.0"] in rows
    scores = ["50.0%", "(35.4%)", "0.500", "(0.000)", "25.0%", "(0.0%)"]
    assert ["1", "thresholded", *scores] in rows
    assert ["2", "random", "50.0%", "0.500", "25.0%"] in rows
    table = [line.rstrip() for line in lines if not line.startswith(("Thresholded", "Warning"))]
    assert max(map(len, table)) <= 80


def test_a_run_whose_data_are_gone_still_has_its_scores(place: Path) -> None:
    lines = printed("a-0").splitlines()
    assert any("Whether the kept words decide is not known" in line for line in lines)
    assert ["accuracy", "75.0%", "50.0%"] in [line.split() for line in lines]


def test_other_data_are_set_apart(place: Path) -> None:
    lines = printed("a-0", "a-1", "c-0").splitlines()
    assert sum(line.startswith("Data: ") for line in lines) == 2
    rows = [line.split() for line in lines]
    assert ["accuracy", "50.0%", "(35.4%)", "50.0%", "(0.0%)"] in rows
    assert ["accuracy", "12.5%", "50.0%"] in rows


def test_a_run_that_trains_is_marked(place: Path) -> None:
    status = StatusWriter(
        place / "b-1", RunProgress(RunDirectory.open(place / "b-1").parsed_config())
    )
    scores = {"thresholded": {"accuracy": 0.375, "kept": 0.5, "loss": 0.5}}
    status.take(Evaluated("co-train", 2, scores, True), {})
    rows = [line.split() for line in printed("a-0", "b-1").splitlines()]
    assert ["2", "0", "of", "1", "b-1"] in rows
    assert ["2", "thresholded", "37.5%", "0.500", "50.0%"] in rows
    assert ["Note:", "b-1:", "is", "not", "finished,"] in [row[:5] for row in rows]
    assert "37.5%" not in printed("b-0", "b-1")  # a mean is over finished runs
    assert ["accuracy", "37.5%"] in [line.split() for line in printed("b-1").splitlines()]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("b-1",), "Finish the run"),
        (("nowhere",), "Name the directory of a run"),
        (("a-0", "a-0", "b-0"), "two runs of one configuration"),
    ],
)
def test_what_cannot_be_shown_is_said(place: Path, arguments: tuple[str, ...], said: str) -> None:
    found = invoke(["report", *arguments])
    assert found.exit_code == 2
    assert said in found.output.replace("\n", " ")
