"""Training as a stream of events: phases, evaluations, checkpoints, stopping and resuming."""

from __future__ import annotations

__all__ = ["Evaluated", "Event", "PhaseBegan", "Stopped", "Trainer", "find_best_metric"]

import math
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rss_rl.config import RunConfig
from rss_rl.data.store import Prepared
from rss_rl.errors import NonFiniteError
from rss_rl.learners.share_control import merit
from rss_rl.logs.metrics import MetricsWriter
from rss_rl.metrics.run_metrics import BestMetric, best_metric
from rss_rl.rollouts.backend import Backend
from rss_rl.runs.checkpoint import (
    Checkpoint,
    checkpoint_steps,
    load_checkpoint,
    mark_checkpoint,
    save_checkpoint,
    step_directory,
)
from rss_rl.training.evaluation import Mode
from rss_rl.training.learner import Learner, LocalLearner
from rss_rl.training.safe_point import SafePoint
from rss_rl.training.session import Session, UpdateReport
from rss_rl.training.time_budget import TimeBudget


def find_best_metric(config: RunConfig, prepared: Prepared) -> BestMetric:
    """The dev metric that the best checkpoint is chosen by.

    Raises:
        ConfigError: the dev split has no such metric.
    """
    dev = prepared.manifest.splits.get("dev")
    return best_metric(
        config,
        prepared.labels,
        questions=dev is not None and dev.questions,
        rationales=dev is not None and dev.rationale,
    )


@dataclass(frozen=True)
class PhaseBegan:
    """A phase begins, or is resumed.

    update       of the run after which the phase began
    steps, done  maximum number of its updates, None = until its plateau; how many are done
    index        of the phase in the configuration
    """

    name: str
    update: int
    steps: int | None
    done: int = 0
    index: int = 0


@dataclass(frozen=True)
class Evaluated:
    """The dev split was scored; `best` says whether this is the best checkpoint of the phase."""

    phase: str
    update: int
    metrics: dict[str, dict[str, float]]
    best: bool


@dataclass(frozen=True)
class Stopped:
    """Training was stopped, and a checkpoint of `update` was written."""

    update: int


Event = PhaseBegan | Evaluated | Stopped | UpdateReport


class Trainer:
    """Runs the phases of a configuration in a run directory.

    Args:
        path: the run directory. writer: of its metrics.
        backend: makes the source of rollouts when one is needed.
        resume: checkpoint to resume from, or None for a new run.
        stop: called after each update; True writes a checkpoint and ends the stream.
        budget: time for the phases, or None.
        point: opened while another thread may end the run; only with a learner in this process.
            leave: called after the checkpoint of the last complete update is written.
    """

    def __init__(
        self,
        config: RunConfig,
        path: Path,
        prepared: Prepared,
        writer: MetricsWriter,
        *,
        learner: Learner,
        backend: Callable[[], Backend],
        resume: Checkpoint | None = None,
        stop: Callable[[], bool] = lambda: False,
        budget: TimeBudget | None = None,
        point: SafePoint | None = None,
        leave: Callable[[Stopped], None] = lambda _: None,
    ) -> None:
        self.config, self.path = config, path
        self._point, self._on_leave = point, leave
        if point is not None and isinstance(learner, LocalLearner):
            learner.before_steps = point.close
        self._writer, self._stop, self._budget = writer, stop, budget
        self._best_metric = find_best_metric(config, prepared)
        self.session = Session(config, prepared, learner, backend)
        self._opened = False  # the evaluation at the begin of the phase was made
        self._evaluation_due = False  # a stop may come between an update and its evaluation
        self._best: float | None = None
        self._is_best_here = False  # no update since the best evaluation of the phase
        self.trained_s = 0.0  # of all updates, including those before the run was resumed
        self._wall_before_s, self._began = 0.0, time.monotonic()
        self.seen = 0  # examples of all updates
        if resume is not None:
            self._restore(resume)

    def run(self) -> Iterator[Event]:
        """Train to the end of the last phase, then load its best checkpoint."""
        schedule = self.session.schedule
        while not schedule.finished:
            began = self.session.update_count - schedule.steps
            phase = schedule.phase
            yield PhaseBegan(phase.name, began, phase.steps, schedule.steps, schedule.index)
            if not self._opened:
                self._opened = self._evaluation_due = True
                yield self._evaluate()
            while self._evaluation_due or not schedule.phase_over:
                if not self._evaluation_due:
                    yield self._update()
                    if self._stop():
                        self.save()
                        yield Stopped(self.session.update_count)
                        return
                if self._evaluation_due:
                    yield self._evaluate()
                elif self._due(self.config.checkpoint.every):
                    self.save()
            self._end_phase()

    def _may_be_left(self) -> AbstractContextManager[None]:
        """Within it, until parameters change, another thread may end the run."""
        # Learners in other processes cannot be interrupted: they answer when they are done.
        if self._point is None or not isinstance(self.session.learner, LocalLearner):
            return nullcontext()
        return self._point.open(self._leave)

    def _leave(self) -> None:
        self.save()
        self._on_leave(Stopped(self.session.update_count))

    def _due(self, every: int) -> bool:
        return self.session.schedule.steps % every == 0

    def _update(self) -> UpdateReport:
        started = time.perf_counter()
        try:
            with self._may_be_left():
                report = self.session.update()
        except NonFiniteError as error:
            last = checkpoint_steps(self.path)[-1]
            remedy = (
                f"{error.remedy}; the last good checkpoint is {step_directory(self.path, last)}"
            )
            raise NonFiniteError(error.what, where=error.where, remedy=remedy) from error
        elapsed = time.perf_counter() - started
        self._is_best_here = False
        self.trained_s += elapsed
        self.seen += report.examples
        report.scalars["time/update_s"] = elapsed
        report.scalars["throughput/examples_per_second"] = report.examples / elapsed
        self._writer.scalars(report.update, report.scalars)
        schedule = self.session.schedule
        if self._budget is not None and self._budget.over(schedule.index):
            schedule.cut()
        over = schedule.phase_over
        self._evaluation_due = over or self._due(self.config.evaluation.every)
        return report

    def _evaluate(self) -> Evaluated:
        schedule, update = self.session.schedule, self.session.update_count
        mode: Mode = "thresholded" if schedule.phase.selection == "sampled" else "all"
        started = time.perf_counter()
        with self._may_be_left():
            metrics = self.session.learner.evaluate("dev", [mode])
        scalars = {f"dev/{mode}/{name}": value for name, value in metrics[mode].items()}
        scalars["time/evaluate_s"] = time.perf_counter() - started
        self._writer.scalars(update, scalars)
        if mode == "thresholded":
            self.session.learner.showcase().write(self._writer, update)
            schedule.observe(-merit(metrics[mode]["reward"], metrics[mode], self.config.reward))
        else:
            schedule.observe(metrics[mode]["loss"])
        self._evaluation_due = False
        self._is_best_here = self._is_best(metrics[mode])
        self.save()
        self._mark()
        return Evaluated(schedule.phase.name, update, metrics, self._is_best_here)

    def _mark(self) -> None:
        """Mark the current checkpoint if it is the best."""
        if self._is_best_here:
            schedule, update = self.session.schedule, self.session.update_count
            mark_checkpoint(self.path, update, best_mark(schedule.index))
            if schedule.is_last:
                mark_checkpoint(self.path, update)

    def _is_best(self, metrics: dict[str, float]) -> bool:
        value = metrics.get(self._best_metric.name, math.nan)
        if not math.isfinite(value):
            # A correlation is undefined if all predictions are equal. The checkpoint at the begin
            # of a phase is marked even so, as the end of the phase loads the marked one.
            return self.session.schedule.steps == 0
        value = -value if self._best_metric.lower_is_better else value
        if self.session.schedule.phase.selects:
            value = merit(value, metrics, self.config.reward)
        if self._best is not None and value <= self._best:
            return False
        self._best = value
        return True

    def _end_phase(self) -> None:
        schedule = self.session.schedule
        restored = None
        if schedule.phase.restore_best or schedule.is_last:
            restored = load_checkpoint(self.path, best_mark(schedule.index))
        self.session.end_phase(restored)
        self._opened, self._best, self._is_best_here = False, None, False
        self.save()

    def save(self) -> None:
        """Write a checkpoint of the current state."""
        self._writer.flush()
        save_checkpoint(
            self.path,
            self.session.update_count,
            self.session.learner.tensors(),
            self.state(),
            keep_last=self.config.checkpoint.keep_last,
        )

    def state(self) -> dict[str, Any]:
        """The state that a checkpoint holds besides tensors."""
        return {
            "session": self.session.state(),
            "opened": self._opened,
            "evaluation_due": self._evaluation_due,
            "best": self._best,
            "is_best_here": self._is_best_here,
            "trained_s": self.trained_s,
            "wall_s": self.wall_seconds,
            "seen": self.seen,
            "metric_rows": self._writer.rows,
        }

    def _restore(self, checkpoint: Checkpoint) -> None:
        self.session.learner.load_tensors(checkpoint.tensors)
        state = checkpoint.state
        self.session.load_state(state["session"])
        self._opened, self._best = state["opened"], state["best"]
        self.trained_s, self.seen = state["trained_s"], state["seen"]
        self._wall_before_s = state["wall_s"]
        self._evaluation_due = state.get("evaluation_due", False)
        self._is_best_here = state.get("is_best_here", False)
        self._mark()  # the process may have been killed between the checkpoint and its mark

    @property
    def wall_seconds(self) -> float:
        """Wall time of this run, including evaluations and the time before it was resumed."""
        return self._wall_before_s + time.monotonic() - self._began


def best_mark(phase: int) -> str:
    """Name of the mark on the checkpoint that was best on dev in a phase."""
    return f"best_phase_{phase}"
