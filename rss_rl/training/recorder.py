"""Metrics and checkpoints, written by the events of training."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from rss_rl.logs.metrics import MetricsWriter
from rss_rl.runs.checkpoint import Checkpoint, mark_checkpoint, save_checkpoint
from rss_rl.training.trainer import Evaluated, Event, PhaseBegan, Saved, Updated

FORK = "fork"
"""Mark of the checkpoint at which the comparison with all tokens branches off."""


class Recorder:
    """Writes what a trainer's events hold to the directory of its run.

    Args:
        path: the directory. writer: of its metrics.
        start: the checkpoint of this directory that training resumes from, or None.
        keep_last: checkpoints to keep besides marked ones.
        fork: mark the end of the first phase.
    """

    def __init__(
        self,
        path: Path,
        writer: MetricsWriter,
        start: Checkpoint | None,
        *,
        keep_last: int,
        fork: bool,
    ) -> None:
        self._path, self._writer, self._keep_last, self._fork = path, writer, keep_last, fork
        if start is not None:  # the process may have been killed before it was marked
            self._mark(start.step, start.state["marks"])

    def take(self, event: Event) -> None:
        """Write an event; a checkpoint is complete, with its marks, on return."""
        if isinstance(event, Updated):
            self._writer.scalars(event.update, event.scalars)
        elif isinstance(event, Evaluated):
            self._writer.scalars(event.update, event.scalars)
            if event.showcase:
                self._writer.text(event.update, "selection/examples", event.showcase)
        elif isinstance(event, Saved):
            self._writer.flush()
            state = {**event.state, "metric_rows": self._writer.rows, "marks": list(event.marks)}
            save = event.update, event.tensors, state
            save_checkpoint(self._path, *save, keep_last=self._keep_last)
            self._mark(event.update, event.marks)
        elif isinstance(event, PhaseBegan) and self._fork and event.index == 1:
            self._mark(event.update, [FORK])

    def _mark(self, step: int, names: Iterable[str]) -> None:
        for name in names:
            mark_checkpoint(self._path, step, name)
