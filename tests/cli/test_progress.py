"""Progress: a line for each phase and evaluation, and how far a run is in between."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest
from rich.console import Console

from rss_rl.api.progress import shown_progress
from rss_rl.config import RunConfig
from rss_rl.errors import LearnersLostError
from rss_rl.learners.phases import Ending
from rss_rl.runs.run_directory import ALL_TOKENS
from rss_rl.training.attempts import LearnersLost
from rss_rl.training.run import Finished, RunEvent
from rss_rl.training.status_writer import RunProgress
from rss_rl.training.stopping import Costs, TimeBudget
from rss_rl.training.trainer import Evaluated, PhaseBegan, Updated

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


def update(number: int, loss: float) -> Updated:
    scalars = {"train/loss": loss, "selection/kept": 0.4, "selection/heads_kept": 0.3, RATE: 1234.0}
    return Updated(number, "co-train", 16, scalars)


def evaluated(number: int, accuracy: float, best: bool, ending: Ending | None = None) -> Evaluated:
    scores = {"thresholded": {"accuracy": accuracy, "kept": 0.25}}
    return Evaluated("co-train", number, scores, best, ending=ending)


EVENTS: list[RunEvent] = [
    PhaseBegan("co-train", 100, 50, done=10, index=1),
    update(111, 2.0),
    update(112, 1.0),
    evaluated(112, 0.75, best=True),
    update(113, 1.0),
    evaluated(113, 0.5, best=False, ending="plateau"),
    LearnersLost(LearnersLostError("learner 1 (process 7) died: why"), 20),
    Finished(Path("run"), {}),
]


@pytest.mark.parametrize("terminal", [False, True])
def test_a_line_for_each_phase_and_evaluation(terminal: bool) -> None:
    out = io.StringIO()
    console = Console(file=out, force_terminal=terminal, width=150, color_system=None)
    with shown_progress(console, RunProgress(CONFIG)) as show:
        for event in EVENTS:
            show(event)
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|⠋[^\r\n]*|\r", "", out.getvalue())
    first, second, third, ends, lost = filter(None, text.splitlines())
    assert first == "co-train: from update 110 to 150 (phase 2 of 3)"
    assert second.startswith("co-train 112  dev: accuracy 75.0%  kept 25.0%  (best)")
    assert "loss 1.900" in second  # the moving average of 2 and 1
    assert "kept 40.0%" in second
    assert second.endswith("1,234/s")
    assert "(best)" not in third
    assert ends.startswith("co-train: ends here, as dev has not got better")
    assert lost.endswith("resuming from update 20: learner 1 (process 7) died: why")
    assert ("\x1b[?25h" in out.getvalue()) == terminal  # the cursor is back


def test_the_time_left_counts_the_comparison(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: clock[0])
    out = io.StringIO()
    console = Console(file=out, force_terminal=False, width=200)
    with shown_progress(console, RunProgress(CONFIG)) as show:
        show(PhaseBegan("co-train", 100, 50, done=10, index=1))
        for number, now in ((111, 5.0), (112, 20.0), (113, 35.0)):
            clock[0] = now
            show(update(number, 1.0))
        show(PhaseBegan(ALL_TOKENS, 100, 50))
        clock[0] = 70
        show(Updated(101, ALL_TOKENS, 16, {}))
    *_, silent, _, last = out.getvalue().splitlines()
    # 37 updates of this phase of 15 s each, and 50 of the comparison, which cost half as much.
    assert silent.startswith("co-train 113  phase 2 of 3, about 16 min left  loss 1.000")
    assert last.startswith("all-tokens 101  phase 3 of 3, about 6 min left")  # 49 of 7.5 s
    budget = TimeBudget(CONFIG, 60)
    with shown_progress(console, RunProgress(CONFIG, budget)) as show:
        show(PhaseBegan("co-train", 100, 50, done=10, index=1))
        for number in (111, 112):
            clock[0] += 20
            show(update(number, 1.0))
    assert "co-train 112  phase 2 of 3, about 20 s left" in out.getvalue()


def test_what_updates_were_measured_to_cost_is_the_time_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Before the first, of all phases; then as much longer as those of this phase take."""
    clock = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: clock[0])
    progress = RunProgress(CONFIG, TimeBudget(CONFIG, costs=Costs([1.0, 4.0])))
    progress.take(PhaseBegan("warm-up", 0, 100))
    assert (
        progress.record.eta_s == 100 * 1 + 50 * 4 + 50 * 1
    )  # the comparison learns from all words
    for number in range(1, 100):
        clock[0] += 2
        progress.take(Updated(number, "warm-up", 16, {}))
    assert progress.record.eta_s == pytest.approx(2 * (1 + 200 + 50), rel=0.02)
    progress.take(PhaseBegan("co-train", 100, 50, index=1))
    assert progress.record.eta_s == pytest.approx(2 * 250, rel=0.02)
