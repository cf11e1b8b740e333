"""A run that was stopped or killed and resumed equals, to the bit, one that never was."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tiny_runs import Outcome

import rss_rl
from rss_rl.config import RunConfig
from rss_rl.errors import CheckpointError, DataError
from rss_rl.reading.models import WEIGHTS
from rss_rl.runs.checkpoint import checkpoint_steps, load_checkpoint, save_checkpoint
from rss_rl.training.run import ALL_TOKENS, Finished, train
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


def optimisers(run: Path) -> int:
    """Checkpoints of a run and its comparison that hold more than weights."""
    return sum(
        any(not name.startswith(WEIGHTS) for name in load_checkpoint(part, step).tensors)
        for part in (run, run / ALL_TOKENS)
        for step in checkpoint_steps(part)
    )


def test_a_finished_run_keeps_its_best_weights_once(
    tiny: Callable[..., RunConfig],
    reference: Outcome,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also one that was stopped, and killed when its report was written but nothing removed."""
    config, run = tiny(checkpoint={"keep": "best", "keep_last": 1}), tmp_path / "run"
    most, made = 0, list[Updated]()

    def forked(*args: Any, **how: Any) -> Path:
        nonlocal most
        saved = save_checkpoint(*args, **how)
        most = max(most, optimisers(run))
        return saved

    with monkeypatch.context() as patched:
        patched.setattr("rss_rl.training.run.keep_best", killed)
        patched.setattr("rss_rl.training.run.save_checkpoint", forked)
        for _ in range(3):
            with suppress(Killed):
                for event in train(config, run, resume=True, stop=lambda: len(made) in (9, 31)):
                    most = max(most, optimisers(run))
                    if isinstance(event, Updated):
                        made.append(event)
    assert most == 3
    assert optimisers(run) == 3
    (finished,) = train(config, run, resume=True)
    assert isinstance(finished, Finished)
    assert finished.report["splits"] == reference.report["splits"]
    for name, part in {"run": run, ALL_TOKENS: run / ALL_TOKENS}.items():
        (step,) = checkpoint_steps(part)
        for mark in ("latest", "best", step):
            kept = {f"{name}/best/{k}": v for k, v in load_checkpoint(part, mark).tensors.items()}
            expected = {
                key: value
                for key, value in reference.tensors.items()
                if key.startswith(tuple(f"{name}/best/{prefix}" for prefix in WEIGHTS))
            }
            assert kept.keys() == expected.keys()
            assert all(kept[key].tobytes() == expected[key].tobytes() for key in kept)
    files = sorted(path.name for path in (run / "checkpoints").iterdir())
    assert files == ["BEST", "LATEST", f"step-{finished.report['best_step']:06d}"]
    before = Outcome.read(run)
    assert [type(event) for event in train(config, run, resume=True)] == [Finished]
    Outcome.read(run).assert_equals(before)
    opened = rss_rl.Run(run)
    again = opened.evaluate("test", ["thresholded"])["thresholded"]
    assert again == pytest.approx(finished.report["splits"]["test"]["thresholded"])
    exported = rss_rl.load(rss_rl.export(run, out=tmp_path / "exported"))
    one, other = (model.predict(["a warm film"])[0] for model in (exported, opened.model))
    assert one.to_dict() == other.to_dict()


class Killed(BaseException):
    """In place of a kill."""


def killed(*_: object) -> None:
    raise Killed


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
