"""Reports a run while it trains: events.jsonl, status.json, the copy on a storage path."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Any, Self

from rss_rl.errors import StorageError
from rss_rl.logs.events import EventLog
from rss_rl.logs.metrics import MetricsWriter
from rss_rl.mirror.mirror import Mirror, NullMirror
from rss_rl.runs.checkpoint import Checkpoint, checkpoint_steps
from rss_rl.training.status_writer import EndState, RunProgress, StatusWriter
from rss_rl.training.trainer import Evaluated, Event, PhaseBegan, Saved, Stopped, Updated


class Observer:
    """Consumes the events of a run; a context manager that records how the run ends.

    Args:
        run_dir: the run directory, locked by this process.
        progress: of the run, which has not begun.
        mirror: of the run, claimed; started on entry and closed on exit.
        storage: the storage path of the mirror.

    `log` is the run's event log, which others may write to as well.
    """

    def __init__(
        self,
        run_dir: Path,
        progress: RunProgress,
        mirror: Mirror | NullMirror,
        storage: str | None = None,
    ) -> None:
        self.run_dir, self._mirror, self._storage = run_dir, mirror, storage
        self.log = EventLog(run_dir)
        self._status = StatusWriter(run_dir, progress, storage)
        self._ended = False

    def __enter__(self) -> Self:
        where: dict[str, Any] = {"path": str(self.run_dir), "storage": self._storage}
        if steps := checkpoint_steps(self.run_dir):
            self.log.write("run_resumed", "info", **where, step=steps[-1])
        else:
            self.log.write("run_started", "info", **where)
        self._mirror.start(self.log)
        return self

    def begin_from(self, checkpoint: Checkpoint | None) -> None:
        """Log the damaged checkpoints that were skipped for the one that training resumes from."""
        for warning in () if checkpoint is None else checkpoint.warnings:
            self.log.write("checkpoint_passed_over", "warning", cause=warning)

    def take(self, event: Event, part: Path, writer: MetricsWriter) -> None:
        """Record a training event of `part`: the run directory or the comparison's.

        Of `Saved`, call it after the checkpoint and its marks have been written.
        """
        if isinstance(event, Updated):
            version = event.scalars.get("policy/version")
            self.log.at(event.update, None if version is None else int(version))
        elif isinstance(event, PhaseBegan):
            self.log.at(event.update + event.done, None)
            self.log.write("phase_began", phase=event.name, steps=event.steps, done=event.done)
        elif isinstance(event, Evaluated):
            self.log.write("evaluated", phase=event.phase, best=event.best, scores=event.metrics)
        elif isinstance(event, Saved):
            self.log.write("checkpoint_saved", step=event.update, part=part.name)
        copying = self._mirror.scalars()
        self._status.take(event, copying)
        if isinstance(event, Saved):
            self._mirror.changed()
            if copying:
                writer.scalars(event.update, copying)
        if isinstance(event, Stopped):
            self.log.write("stop_asked")
            self._conclude("run_stopped", "stopped")

    def finished(self, wall_s: float) -> None:
        """Called when the report is written: complete the copy on the storage path.

        Raises:
            StorageError: the copy could not be completed; the run directory is intact.
        """
        self._conclude("run_finished", "finished", wall_s=round(wall_s, 2))

    def _conclude(self, event: str, state: EndState, **fields: Any) -> None:
        self.log.write(event, **fields)
        self._status.end(state)
        self._ended = True
        self._mirror.finish()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            if self._ended and isinstance(error, GeneratorExit | None):
                return  # finished or stopped, which was logged
            if error is not None:
                self._fail(error)
        finally:
            self.close()

    def close(self) -> None:
        """Release the storage, as leaving the context does."""
        self._mirror.close()

    def _fail(self, error: BaseException) -> None:
        if isinstance(error, GeneratorExit):  # the consumer of the events closed the generator
            self.log.write("run_stopped")
            self._status.end("stopped")
        else:
            said = str(error) or type(error).__name__
            self.log.write("run_failed", "error", error=said, kind=type(error).__name__)
            self._status.end("failed", said)
        if not self._ended:
            try:
                self._mirror.finish()
            except StorageError as second:
                self.log.write("storage_failed", "error", cause=str(second))
