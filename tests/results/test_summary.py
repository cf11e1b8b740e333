"""Runs over seeds: mean and sample standard deviation, and nothing that only some runs have."""

from __future__ import annotations

from typing import Any

import pytest

from rss_rl.errors import CheckpointError
from rss_rl.results.output import markdown_table
from rss_rl.results.score_cells import summary_cells
from rss_rl.results.summary import summarise


def _report(seed: int, pearson: float, **more: Any) -> dict[str, Any]:
    scores = {"pearson": pearson, "kept": 0.25, **more}
    return {"seed": seed, "splits": {"test": {"thresholded": scores}}}


def markdown(*reports: dict[str, Any]) -> str:
    return markdown_table(*summary_cells("split", summarise(reports)))


def test_mean_and_sample_deviation() -> None:
    rows = summarise([_report(0, 0.85), _report(1, 0.87), _report(2, 0.86, mse=1.0)])
    ((split, mode, scores),) = rows
    assert (split, mode) == ("test", "thresholded")
    assert scores["pearson"].mean == pytest.approx(0.86)
    assert scores["pearson"].deviation == pytest.approx(0.01)
    assert scores["kept"].deviation == pytest.approx(0.0)
    assert "mse" not in scores


def test_markdown_of_one_run_shows_no_spread() -> None:
    lines = markdown(_report(0, 0.85123)).splitlines()
    assert lines[0] == "| split | selection | Pearson r | kept |"
    assert lines[2] == "| test | thresholded | 0.8512 | 25.0% |"


def test_markdown_of_several_runs() -> None:
    text = markdown(_report(0, 0.85), _report(1, 0.87))
    assert "0.8600 (0.0141)" in text


def test_a_seed_counts_once() -> None:
    with pytest.raises(CheckpointError, match="seeds are 3, 3"):
        summarise([_report(3, 0.85), _report(3, 0.85)])


def test_runs_that_share_nothing() -> None:
    other = {"seed": 1, "splits": {"dev": {}}}
    with pytest.raises(CheckpointError, match="share no split"):
        summarise([_report(0, 0.85), other])
