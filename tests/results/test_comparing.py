"""Groups of runs, what they differ in, and what may be claimed of their difference."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from rss_rl.config import RunConfig
from rss_rl.errors import CheckpointError
from rss_rl.results.comparing import (
    Group,
    Run,
    config_differences,
    group_runs,
    main_score,
    paired,
    read_run,
)
from rss_rl.runs.run_directory import RunDirectory


def run(seed: int, score: float | None = None, mode: str = "thresholded", **changes: Any) -> Run:
    report = None if score is None else {"splits": {"test": {mode: {"accuracy": score}}}}
    return Run(Path(f"{changes}-{seed}"), {"seed": seed, "model": {"hidden": 5}} | changes, report)


def group(name: str, scores: dict[int, float], **changes: Any) -> Group:
    return Group(name, tuple(run(seed, score, **changes) for seed, score in scores.items()))


def test_groups_differ_in_more_than_the_seed() -> None:
    runs = [run(0, 0.5), run(0, 0.6, model={"hidden": 7}), run(1, 0.5), run(1, model={"hidden": 7})]
    groups = group_runs(runs)
    assert [(g.name, [r.seed for r in g.runs]) for g in groups] == [("A", [0, 1]), ("B", [0, 1])]
    assert len(groups[1].finished()) == 1
    assert config_differences(groups) == [("model.hidden", ["5", "7"])]
    with pytest.raises(CheckpointError, match="have the seed 1"):
        group_runs([run(1, 0.5), run(1, 0.4)])


def test_differences_of_lists_of_sections() -> None:
    short, long = ([{"name": "a", "steps": n}] for n in (3, 4))
    groups = group_runs([run(0, phases=short), run(0, phases=[*long, {"name": "b"}])])
    assert config_differences(groups) == [
        ("phases.0.steps", ["3", "4"]),
        ("phases.1.name", ["-", '"b"']),
    ]


def test_paired_over_the_seeds_that_both_have() -> None:
    first = {0: 0.81, 1: 0.79, 2: 0.84, 3: 0.80, 4: 0.2}
    other = {3: 0.86, 2: 0.89, 1: 0.82, 0: 0.88, 9: 0.1}
    found = paired(group("A", first), group("B", other), "test", "accuracy", MODES)
    assert found.seeds == (0, 1, 2, 3)
    ours, theirs = ([scores[s] for s in found.seeds] for scores in (first, other))
    assert found.mean == pytest.approx(np.mean(theirs) - np.mean(ours))
    assert found.t_test == pytest.approx(stats.ttest_rel(theirs, ours).pvalue)
    gaps = np.subtract(theirs, ours)
    flipped = [abs(np.dot(signs, gaps)) for signs in product((-1, 1), repeat=4)]
    assert found.permutation == np.mean([f >= abs(gaps.sum()) - 1e-12 for f in flipped]) == 2 / 16


MODES = {"A": "thresholded", "B": "thresholded"}


@pytest.mark.parametrize("count", [0, 1, 2])
def test_no_p_below_three_seeds(count: int) -> None:
    first, other = ({s: base + 0.01 * s for s in range(count)} for base in (0.1, 0.9))
    found = paired(group("A", first), group("B", other), "test", "accuracy", MODES)
    assert found.t_test is None
    assert found.permutation is None
    assert (found.mean is None) == (count == 0)


def test_many_seeds_and_equal_differences() -> None:
    draw = np.random.default_rng(0)
    first = {s: float(draw.random()) for s in range(20)}
    other = {s: v + 0.1 + 0.05 * float(draw.random()) for s, v in first.items()}
    found = paired(group("A", first), group("B", other), "test", "accuracy", MODES)
    assert found.permutation is not None
    assert 0 < found.permutation < 1e-3
    same = paired(group("A", first), group("B", first), "test", "accuracy", MODES)
    assert (same.mean, same.t_test, same.permutation) == (0.0, None, 1.0)


def test_the_mode_of_each_group_is_its_own() -> None:
    groups = [group("A", {0: 0.5}), group("B", {0: 0.6}, mode="all")]
    assert main_score(groups, "test") == ("accuracy", {"A": "thresholded", "B": "all"})
    assert main_score([groups[0], Group("B", (run(0),))], "test") is None
    assert main_score(groups, "dev") is None


def test_read(tiny_config: RunConfig, tmp_path: Path, completed: Callable[[Path], None]) -> None:
    old = tiny_config.model_dump(mode="json")
    del old["reward"]["target_share"]  # as written before there was such a key
    with RunDirectory.create(tmp_path / "run", old):
        pass
    found = read_run(tmp_path / "run")
    assert found.report is None
    assert found.config["reward"]["target_share"] is None
    completed(tmp_path / "run")
    assert read_run(tmp_path / "run").report == {"seed": 0}


@pytest.fixture
def completed() -> Callable[[Path], None]:
    def complete(path: Path) -> None:
        with RunDirectory.open(path, lock=True) as directory:
            directory.write_report({"seed": 0})

    return complete
