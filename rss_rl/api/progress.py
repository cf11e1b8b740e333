"""Progress of a training run: a line for each phase and evaluation, and how far it is in between.

Import it only to train: its events need torch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console

from rss_rl.api.terminal import busy, say
from rss_rl.metrics.measures import brief_measures, describe_scores
from rss_rl.training.attempts import LearnersLost
from rss_rl.training.run import RunEvent
from rss_rl.training.status import span
from rss_rl.training.status_writer import RunProgress
from rss_rl.training.trainer import Evaluated, PhaseBegan, Updated

_SMOOTHING = 0.9
_TRAINING = {
    "reward/total": "reward",
    "train/loss": "loss",
    "train/accuracy": "accuracy",
    "reward/lambda": "lambda",
    "selection/kept": "kept",
}
_ENDS = {
    "plateau": "as dev has not got better for as many evaluations as its patience",
    "time": "as its part of the time is over",
}
_RATE = "throughput/examples_per_second"


@contextmanager
def shown_progress(console: Console, progress: RunProgress) -> Iterator[Callable[[RunEvent], None]]:
    """A function that shows each event of a run that is about to begin."""
    with busy(console, "getting ready") as tell:
        yield _Progress(console, progress, tell).show


class _Progress:
    """Moving averages of the training metrics since the phase began, and where they are shown."""

    def __init__(
        self, console: Console, progress: RunProgress, tell: Callable[[str], None]
    ) -> None:
        self._console, self._progress, self._tell = console, progress, tell
        self._smooth: dict[str, float] = {}

    def show(self, event: RunEvent) -> None:
        self._progress.take(event)
        record, out = self._progress.record, self._console
        place = f"phase {record.phase_number} of {record.phases}"
        if record.eta_s is not None:
            place += f", about {span(record.eta_s)} left"
        if isinstance(event, PhaseBegan):
            self._smooth = {}
            end = f"to {event.update + event.steps}" if event.steps else "until its plateau"
            say(out, f"{event.name}: from update {record.update} {end} ({place})")
        elif isinstance(event, Updated):
            for name, value in event.scalars.items():
                before = self._smooth.get(name, value)
                self._smooth[name] = _SMOOTHING * before + (1 - _SMOOTHING) * value
            self._tell(f"{event.phase} {event.update}  {place}  {self._numbers()}")
        elif isinstance(event, LearnersLost):
            say(out, f"learners lost, resuming from update {event.update}: {event.error}")
        elif isinstance(event, Evaluated):
            (metrics,) = event.metrics.values()
            dev = describe_scores(brief_measures(metrics)) + "  (best)" * event.best
            training = f"  | training: {numbers}" if (numbers := self._numbers()) else ""
            say(out, f"{event.phase} {event.update}  dev: {dev}{training}")
            if event.ending in _ENDS:
                say(out, f"{event.phase}: ends here, {_ENDS[event.ending]}")
        out.file.flush()

    def _numbers(self) -> str:
        """The moving averages, on one line."""
        known = {name: self._smooth[tag] for tag, name in _TRAINING.items() if tag in self._smooth}
        rate = f"  {self._smooth[_RATE]:,.0f}/s" if _RATE in self._smooth else ""
        return f"{describe_scores(known)}{rate}"
