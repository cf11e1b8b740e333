"""Progress: lines without a terminal, a panel in one."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from rss_rl.api.progress import make_progress
from rss_rl.config import RunConfig
from rss_rl.errors import LearnerError
from rss_rl.runs.run_directory import ALL_TOKENS
from rss_rl.training.attempts import LearnersLost
from rss_rl.training.run import Finished, RunEvent
from rss_rl.training.trainer import Evaluated, PhaseBegan, UpdateReport

RATE = "throughput/examples_per_second"
CONFIG = RunConfig.model_validate(
    {
        "data": "some",
        "phases": [
            {"name": "warm-up", "supervised": True, "selection": "all", "steps": 100},
            {"name": "co-train", "supervised": True, "policy": True, "steps": 50},
        ],
    }
)


def update(number: int, loss: float) -> UpdateReport:
    scalars = {"train/loss": loss, "selection/kept": 0.4, "selection/heads_kept": 0.3, RATE: 1234.0}
    return UpdateReport(number, "co-train", 16, scalars)


def evaluated(number: int, accuracy: float, best: bool) -> Evaluated:
    return Evaluated(
        "co-train", number, {"thresholded": {"accuracy": accuracy, "kept": 0.25}}, best
    )


EVENTS: list[RunEvent] = [
    PhaseBegan("co-train", 100, 50, done=10, index=1),
    update(111, 2.0),
    update(112, 1.0),
    evaluated(112, 0.75, best=True),
    update(113, 1.0),
    evaluated(113, 0.5, best=False),
    Finished(Path("run"), {}),
]


def shown(terminal: bool) -> str:
    out = io.StringIO()
    console = Console(file=out, force_terminal=terminal, width=120, color_system=None)
    with make_progress(console, CONFIG) as progress:
        for event in EVENTS:
            progress.show(event)
    return out.getvalue()


def test_a_line_for_each_phase_and_evaluation() -> None:
    first, second, third = shown(terminal=False).splitlines()
    assert first == "co-train: from update 110 to 150 (phase 2 of 3)"
    assert second.startswith("co-train 112  dev: accuracy 75.0%  kept 25.0%  (best)")
    assert "loss 1.900" in second  # the moving average of 2 and 1
    assert "heads 30.0%" in second
    assert second.endswith("1,234/s")
    assert "(best)" not in third


def test_the_time_left_counts_the_comparison(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: clock[0])
    out = io.StringIO()
    with make_progress(Console(file=out, force_terminal=False, width=200), CONFIG) as progress:
        progress.show(PhaseBegan("co-train", 100, 50, done=10, index=1))
        for number, now in ((111, 10.0), (112, 30.0), (113, 31.0)):
            clock[0] = now
            progress.show(update(number, 1.0))
        progress.show(PhaseBegan(ALL_TOKENS, 100, 50))
    _, silent, last = out.getvalue().splitlines()
    # 38 updates of this phase and 50 of the comparison, each of 15 s.
    assert silent == "co-train 112  phase 2 of 3, about 22 min left"
    assert last.endswith("(phase 3 of 3, about 9 min left)")  # 50 updates of 31 / 3 s
    with make_progress(Console(file=out, force_terminal=False), CONFIG, limit_s=60) as progress:
        progress.show(PhaseBegan("co-train", 100, 50, done=10, index=1))
        clock[0] += 35
        progress.show(update(111, 1.0))
    assert out.getvalue().endswith("co-train 111  phase 2 of 3, about 25 s left\n")


def test_a_panel_and_a_line_that_stays() -> None:
    text = shown(terminal=True)
    assert "✓ co-train: 13 updates, best on dev at update 112: accuracy 75.0%" in text
    assert "\x1b[?25h" in text  # the cursor is back


@pytest.mark.parametrize("terminal", [False, True])
def test_lost_learners_are_named(terminal: bool) -> None:
    out = io.StringIO()
    with make_progress(Console(file=out, force_terminal=terminal, width=200), CONFIG) as progress:
        progress.show(LearnersLost(LearnerError("learner 1 (process 7) died: why"), 20))
    assert "resuming from update 20: learner 1 (process 7) died: why" in out.getvalue()


def test_a_stop_is_announced(capfd: pytest.CaptureFixture[str]) -> None:
    with make_progress(Console(file=io.StringIO(), force_terminal=False), CONFIG) as progress:
        progress.stopping()
    assert "Ctrl-C again quits at once" in capfd.readouterr().err
