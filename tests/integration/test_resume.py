"""A run that was stopped or killed and resumed equals, to the bit, one that never was."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tiny_runs import Outcome

from rss_rl.config import RunConfig
from rss_rl.errors import CheckpointError, DataError
from rss_rl.training.run import Finished, train
from rss_rl.training.trainer import PhaseBegan, Stopped, Updated

KILL_AT = Path(__file__).with_name("kill_at.py")


@pytest.mark.parametrize(
    "kills",
    [
        # Within warm-up, frozen, co-train, and twice within the comparison with all tokens.
        ("update:5", "update:9", "update:12", "update:8", "update:4"),
        # With a best checkpoint that is not marked yet; with metrics of a phase's opening whose
        # checkpoint was not written; the same in the last phase, whose best the report is about.
        ("mark_checkpoint:2", "save_checkpoint:4", "mark_checkpoint:4"),
    ],
    ids=["every phase", "between files"],
)
def test_killed(
    kills: tuple[str, ...], tiny: Callable[..., RunConfig], reference: Outcome, tmp_path: Path
) -> None:
    config = tmp_path / "config.json"
    config.write_text(tiny().model_dump_json())
    command = [sys.executable, str(KILL_AT), str(config), str(tmp_path / "run"), *kills, "finish"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert ended.returncode == 0, ended.stderr
    Outcome.read(tmp_path / "run").assert_equals(reference)


def test_stopped(tiny: Callable[..., RunConfig], reference: Outcome, tmp_path: Path) -> None:
    after = 17
    made: list[Updated] = []
    for event in train(tiny(), tmp_path / "run", stop=lambda: len(made) >= after):
        if isinstance(event, Updated):
            made.append(event)
        last = event
    assert isinstance(last, Stopped)
    assert len(made) == after
    events = list(train(tiny(), tmp_path / "run", resume=True))
    begun = next(event for event in events if isinstance(event, PhaseBegan))
    assert begun.done > 0
    assert begun.update + begun.done == last.update
    assert isinstance(events[-1], Finished)
    Outcome.read(tmp_path / "run").assert_equals(reference)


def test_a_finished_run_stays_as_it_is(tiny: Callable[..., RunConfig], tmp_path: Path) -> None:
    list(train(tiny(), tmp_path / "run"))
    before = Outcome.read(tmp_path / "run")
    events = list(train(tiny(), tmp_path / "run", resume=True))
    assert [type(event) for event in events] == [Finished]
    Outcome.read(tmp_path / "run").assert_equals(before)


def test_another_configuration_or_other_data_are_refused(
    tiny: Callable[..., RunConfig], prepared: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    list(train(tiny(), run, stop=lambda: True))
    with pytest.raises(CheckpointError, match="differs from the run's in: reward, seed"):
        list(train(tiny(seed=1, reward={"sparsity_cost": 0.5}), run, resume=True))
    manifest = run / "inputs" / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"name": "tiny"', '"name": "other"'))
    with pytest.raises(DataError, match="not those the run began with"):
        list(train(tiny(), run, resume=True))
