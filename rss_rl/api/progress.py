"""Progress display of a training run: a live panel in a terminal, else occasional lines.

Import it only to train: its events need torch.
"""

from __future__ import annotations

import math
import os
import sys
import time
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from rss_rl.api.terminal import say
from rss_rl.config import RunConfig
from rss_rl.metrics.measures import brief_measures
from rss_rl.results.output import describe_scores
from rss_rl.runs.run_directory import ALL_TOKENS
from rss_rl.training.attempts import LearnersLost
from rss_rl.training.run import Finished, RunEvent, compares
from rss_rl.training.trainer import Evaluated, PhaseBegan, UpdateReport

_SMOOTHING = 0.9
_SILENT_S = 30.0
"""Longest time without a line where there is no terminal."""
_MINUTES_FROM = 100.0
"""Seconds from which the time left is told in minutes."""
_STOPPING = "stopping after this update; Ctrl-C again quits at once"
_TRAINING = {
    "reward/total": "reward",
    "train/loss": "loss",
    "train/accuracy": "accuracy",
    "reward/lambda": "lambda",
    "selection/kept": "kept",
    "selection/heads_kept": "heads_kept",
    "selection/dependents_kept": "dependents_kept",
}
_RATE = "throughput/examples_per_second"


def _lost(event: LearnersLost) -> str:
    return f"learners lost, resuming from update {event.update}: {event.error}"


@dataclass
class _Phase:
    """State of the current phase; `smooth` holds moving averages over its updates."""

    name: str = ""
    began: int = 0
    done: int = 0
    steps: int | None = None
    smooth: dict[str, float] = field(default_factory=dict)
    dev: Evaluated | None = None
    best: Evaluated | None = None

    def after(self, event: RunEvent) -> _Phase:
        """The state after an event: that of the next phase once it begins."""
        if isinstance(event, PhaseBegan):
            return _Phase(event.name, event.update, event.done, event.steps)
        if isinstance(event, UpdateReport):
            self.done = event.update - self.began
            for name, value in event.scalars.items():
                before = self.smooth.get(name, value)
                self.smooth[name] = _SMOOTHING * before + (1 - _SMOOTHING) * value
        elif isinstance(event, Evaluated):
            self.dev = event
            self.best = event if event.best else self.best
        return self

    def numbers(self) -> str:
        """Moving averages of the training metrics, on one line."""
        known = {n: self.smooth[tag] for tag, n in _TRAINING.items() if tag in self.smooth}
        return describe_scores(known)


def _dev_numbers(event: Evaluated) -> str:
    (metrics,) = event.metrics.values()
    return describe_scores(brief_measures(metrics))


class _Course:
    """How far a run has come, its comparison with all words included.

    Args:
        limit_s: longest time for the run, or None.
    """

    def __init__(self, config: RunConfig, limit_s: float | None) -> None:
        steps = [phase.steps for phase in config.phases]
        self._phases = len(steps) + compares(config)
        self._number = 0
        known = None if None in steps else sum(step or 0 for step in steps)
        shared = (steps[0] or 0) if config.phases[0].selection == "all" else 0
        self._run = known
        self._compared = 0 if known is None or not compares(config) else known - shared
        self._began, self._limit_s = time.monotonic(), limit_s
        self._done = 0  # updates in this process
        self._left: int | None = None  # updates

    def take(self, event: RunEvent) -> None:
        """Record an event."""
        if isinstance(event, PhaseBegan):
            whole = event.name == ALL_TOKENS
            self._number = self._phases if whole else event.index + 1
            if not self._done:
                self._began = time.monotonic()
            if whole:
                self._left = None if event.steps is None else event.steps - event.done
            elif self._run is not None:
                self._left = self._run + self._compared - event.update - event.done
        elif isinstance(event, UpdateReport):
            self._done += 1
            if self._left is not None:
                self._left -= 1

    def __str__(self) -> str:
        """The number of the phase, and the time that is left if it can be told."""
        phase = f"phase {self._number} of {self._phases}"
        if self._left is None or not self._done:
            return phase
        taken = time.monotonic() - self._began
        left = self._left * taken / self._done
        if self._limit_s is not None:
            left = min(left, max(0.0, self._limit_s - taken))
        unit, size = ("min", 60) if left >= _MINUTES_FROM else ("s", 1)
        return f"{phase}, about {math.ceil(left / size)} {unit} left"


def make_progress(console: Console, config: RunConfig, limit_s: float | None = None) -> Progress:
    """Progress display for the console: live in a terminal, else plain lines.

    Args:
        limit_s: longest time for the run, or None.
    """
    shown = _LiveProgress if console.is_terminal else Progress
    return shown(console, _Course(config, limit_s))


class Progress(AbstractContextManager["Progress"]):
    """Shows the events of a run: one line for each phase and each evaluation, or every 30 s."""

    def __init__(self, console: Console, course: _Course) -> None:
        self._console, self._course = console, course
        self._phase = _Phase()
        self._said = time.monotonic()

    def show(self, event: RunEvent) -> None:
        """Process an event."""
        self._phase = self._phase.after(event)
        self._course.take(event)
        if isinstance(event, PhaseBegan):
            end = f"to {event.update + event.steps}" if event.steps else "until its plateau"
            at = event.update + event.done
            self._say(f"{event.name}: from update {at} {end} ({self._course})")
        if isinstance(event, UpdateReport) and time.monotonic() - self._said >= _SILENT_S:
            self._say(f"{event.phase} {event.update}  {self._course}")
        if isinstance(event, LearnersLost):
            self._say(_lost(event))
        if isinstance(event, Evaluated):
            rate = self._phase.smooth.get(_RATE)
            training = f"  | training: {self._phase.numbers()}  {rate:,.0f}/s" if rate else ""
            best = "  (best)" if event.best else ""
            self._say(f"{event.phase} {event.update}  dev: {_dev_numbers(event)}{best}{training}")

    def _say(self, line: str) -> None:
        self._said = time.monotonic()
        say(self._console, line)
        self._console.file.flush()

    def stopping(self) -> None:
        """Show that the run is stopping; safe in a signal handler."""
        os.write(sys.stderr.fileno(), f"{_STOPPING}\n".encode())

    def __exit__(self, *_: object) -> None:
        pass


class _LiveProgress(Progress):
    """A panel redrawn four times a second; each finished phase leaves a summary line."""

    def __init__(self, console: Console, course: _Course) -> None:
        super().__init__(console, course)
        self._started = time.monotonic()
        self._stopping = False
        self._live = Live(console=console, get_renderable=self._panel, refresh_per_second=4)

    def show(self, event: RunEvent) -> None:
        """See `Progress`."""
        if isinstance(event, PhaseBegan | Finished):
            self._leave_line()
        if isinstance(event, LearnersLost):
            self._say(_lost(event))
        self._phase = self._phase.after(event)
        self._course.take(event)

    def stopping(self) -> None:
        """See `Progress`; shown at the next redraw."""
        self._stopping = True

    def _leave_line(self) -> None:
        phase, best = self._phase, self._phase.best
        if best is None:
            return
        self._console.print(
            f"[green]✓[/green] {phase.name}: {phase.done:,} updates, best on dev at update "
            f"{best.update}: {_dev_numbers(best)}",
            soft_wrap=True,
        )

    def _panel(self) -> RenderableType:
        phase = self._phase
        seconds = int(time.monotonic() - self._started)
        clock = f"{seconds // 60}:{seconds % 60:02}"
        if not phase.name:
            return Text(f"getting ready  {clock}", "dim")
        rows = Table.grid(padding=(0, 2, 0, 0))
        rows.add_column(style="dim")
        rows.add_column()
        if phase.smooth:
            rows.add_row("training", phase.numbers())
        if phase.dev is not None:
            rows.add_row("dev", f"{_dev_numbers(phase.dev)}  [dim]update {phase.dev.update}[/dim]")
        if phase.best is not None:
            best = phase.best
            rows.add_row("best", f"{_dev_numbers(best)}  [dim]update {best.update}[/dim]")
        parts: list[RenderableType] = [self._bar(clock), rows]
        if self._stopping:
            parts.append(Text(_STOPPING, "yellow"))
        return Group(*parts)

    def _bar(self, clock: str) -> Table:
        phase = self._phase
        line = Table.grid(padding=(0, 2, 0, 0))
        of = "" if phase.steps is None else f"/{phase.steps:,}"
        rate = phase.smooth.get(_RATE)
        line.add_row(
            f"[bold]{phase.name}[/bold]",
            ProgressBar(total=phase.steps, completed=phase.done, width=30),
            f"{phase.done:,}{of}",
            "" if rate is None else f"{rate:,.0f} examples/s",
            f"{clock}, {self._course}",
        )
        return line

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        # Otherwise the last panel would stay on the screen after the summary lines.
        self._live.transient = True
        self._live.stop()
