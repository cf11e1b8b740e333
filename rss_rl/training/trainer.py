"""Training as a stream of events: updates, phases, evaluations, checkpoints, stopping, resuming."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rss_rl.config import RunConfig
from rss_rl.data.batch_order import BatchOrder
from rss_rl.data.store import Prepared
from rss_rl.errors import NonFiniteError
from rss_rl.learners.phases import Ending, PhaseSchedule, Turn
from rss_rl.learners.share_control import ShareController, merit
from rss_rl.learners.updates import Needs
from rss_rl.metrics.measures import Measure
from rss_rl.metrics.metrics import best_metric
from rss_rl.rollouts.backend import Backend
from rss_rl.rollouts.rollout import Job
from rss_rl.runs.checkpoint import BEST, Checkpoint
from rss_rl.training.evaluation import Mode
from rss_rl.training.learner import Learner
from rss_rl.training.pipeline import RolloutPipeline
from rss_rl.training.stopping import TimeBudget
from rss_rl.types import Array

BEST_OF_PHASE = "best_phase"
"""Mark of the checkpoint that is best on dev in the present phase."""


def find_best_metric(config: RunConfig, prepared: Prepared) -> Measure:
    """The dev metric that the best checkpoint is chosen by.

    Raises:
        ConfigError: the dev split has no such metric.
    """
    dev = prepared.manifest.splits.get("dev")
    return best_metric(
        config,
        prepared.labels,
        questions=dev is not None and "question" in dev.known,
        rationales=dev is not None and "rationale" in dev.known,
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
class Updated:
    """One update: its number (from 1), its phase, the rows learnt from, and metrics by tag."""

    update: int
    phase: str
    rows: Array
    scalars: dict[str, float]

    @property
    def examples(self) -> int:
        """How many examples were learnt from."""
        return len(self.rows)


@dataclass(frozen=True)
class Evaluated:
    """The dev split was scored; a `Saved` follows.

    metrics   by mode of selection
    best      whether this is the best checkpoint of the phase
    scalars   the same and the time it took, by tag
    showcase  sentences of dev with the selected words, Markdown; empty where all are read
    ending    why the phase ends here; None: it goes on
    """

    phase: str
    update: int
    metrics: dict[str, dict[str, float]]
    best: bool
    scalars: Mapping[str, float] = field(default_factory=dict)
    showcase: str = ""
    ending: Ending | None = None


@dataclass(frozen=True)
class Saved:
    """What a checkpoint of `update` needs, to be written before the next event is asked for.

    tensors  see `Learner.tensors`; the next update may change them
    state    plain JSON data
    marks    of the checkpoint, such as `best`
    """

    update: int
    tensors: Mapping[str, Any]
    state: Mapping[str, Any]
    marks: tuple[str, ...]


@dataclass(frozen=True)
class Stopped:
    """Training was stopped, after the `Saved` of `update`."""

    update: int


Event = PhaseBegan | Updated | Evaluated | Saved | Stopped


class Trainer:
    """Runs the phases of a configuration; whatever is written, others write by its events.

    Update u learns from batch u of the data, in every phase, so the number of updates alone says
    where the run is. It is the policy's version as well.

    Args:
        backend: makes the samplers when the first selection is to be sampled, so that a run that
            samples nothing starts none.
        marked: reads the checkpoint that a `Saved` marked with a name.
        resume: checkpoint to resume from, or None for a new run.
        stop: called after each update; True ends the stream with `Saved` and `Stopped`.
        budget: time for the phases, or None.
    """

    def __init__(
        self,
        config: RunConfig,
        prepared: Prepared,
        *,
        learner: Learner,
        backend: Callable[[], Backend],
        marked: Callable[[str], Checkpoint],
        resume: Checkpoint | None = None,
        stop: Callable[[], bool] = lambda: False,
        budget: TimeBudget | None = None,
    ) -> None:
        self.config, self.learner = config, learner
        self._marked, self._stop, self._budget = marked, stop, budget
        self._best_metric = find_best_metric(config, prepared)
        self._needs = Needs.of(config.policy_update)
        self._order = BatchOrder(
            prepared.split("train"),
            config.batch_size,
            config.seed,
            batch_tokens=config.batch_tokens,
            reach=config.sampler.max_policy_lag,
            by_length=config.settled_lengths == "similar",
        )
        self._pipeline = RolloutPipeline(backend, config.sampler)
        self._publishing: dict[str, float] = {}  # metrics of the newest snapshot, not reported yet
        self.schedule = PhaseSchedule(config.phases)
        self.share = ShareController(config.reward, config.policy_updates)
        self.updates = 0  # done so far
        self._saved = 0  # update of the last checkpoint
        self._evaluation_due = True  # a phase begins with one, and a stop may come before one
        self._best: float | None = None
        self._is_best_here = False  # no update since the best evaluation of the phase
        self.trained_s = 0.0  # of all updates, including those before the run was resumed
        self._wall_before_s, self._began = 0.0, time.monotonic()
        self.seen = 0  # examples of all updates
        if resume is not None:
            self._restore(resume)

    def close(self) -> None:
        """Release the samplers."""
        self._pipeline.close()

    def run(self) -> Iterator[Event]:
        """Train to the end of the last phase, then load its best checkpoint."""
        schedule = self.schedule
        while not schedule.finished:
            phase, done = schedule.phase, schedule.steps
            yield PhaseBegan(phase.name, self.updates - done, phase.steps, done, schedule.index)
            while self._evaluation_due or not schedule.phase_over:
                if self._evaluation_due:
                    yield self._evaluate()
                    yield self.checkpoint()
                    continue
                yield self.update()
                if self._stop():
                    yield self.checkpoint()
                    yield Stopped(self.updates)
                    return
                if not self._evaluation_due and self._due(self.config.checkpoint.every):
                    yield self.checkpoint()
            self._end_phase()
            yield self.checkpoint()

    def update(self) -> Updated:
        """One update of the present phase.

        Raises:
            NonFiniteError: naming phase, update, rows and the last good checkpoint; of two learners
                the first may have learnt from the batch, so the run must not continue from here.
        """
        started, turn, phase = time.perf_counter(), self.schedule.turn(), self.schedule.phase.name
        assert turn is not None
        rows, rollout = self._order.rows(self.updates), None
        scalars: dict[str, float] = {"phase/index": self.schedule.index}
        try:
            if self._samples(turn):
                self._supply_samplers()  # in a phase's first update; else they are at work
                rollout, sampled = self._pipeline.take(self.updates)
                scalars |= sampled | self._publishing
                self._publishing = {}
            turn = turn._replace(target=self.share.target, price=self.share.costs)
            scalars |= self.learner.update(self.updates, rows, turn, rollout)
        except NonFiniteError as error:
            raise self._located(error, phase, rows) from error
        if turn.policy:  # lambda moves here, so that it is one for all learners
            scalars |= self.share.observe(scalars)
        self.updates += 1
        self.schedule.count()
        # Before anything else is done, so that samplers work while dev is scored or a file saved.
        self._supply_samplers()
        elapsed = time.perf_counter() - started
        scalars |= {
            "time/update_s": elapsed,
            "throughput/examples_per_second": len(rows) / elapsed,
        }
        if rollout is not None:
            scalars["learner/idle_share"] = scalars["time/sample_s"] / elapsed
        self.trained_s += elapsed
        self.seen += len(rows)
        if self._budget is not None and self._budget.over(self.schedule.index):
            self.schedule.cut()
        self._is_best_here = False
        self._evaluation_due = self.schedule.phase_over or self._due(self.config.evaluation.every)
        return Updated(self.updates, phase, rows, scalars)

    def _located(self, error: NonFiniteError, phase: str, rows: Array) -> NonFiniteError:
        """The error with what it happened to."""
        where = f"phase {phase}, update {self.updates + 1}, rows {rows[:4].tolist()}..."
        return NonFiniteError(
            error.what,
            where=f"{where}, {error.where}" if error.where else where,
            remedy="Lower the learning rate or the clip norm; the last good checkpoint is that of"
            f" update {self._saved}",
        )

    def _samples(self, turn: Turn | None) -> bool:
        """Whether an update needs a rollout."""
        return turn is not None and turn.sampled and self._needs.log_probs

    def _supply_samplers(self) -> None:
        """Publish, and hand over the jobs of all updates that may be sampled now."""
        if not self._samples(self.schedule.turn()):
            return
        published = self._pipeline.published
        if published != self.updates:
            self._pipeline.start()
            started = time.perf_counter()
            snapshot = self.learner.publish(self.updates, full=published is None)
            self._pipeline.publish(snapshot)
            self._publishing = {
                "publish/duration_ms": 1000 * (time.perf_counter() - started),
                "publish/bytes": snapshot.bytes,
            }
        for update in self._pipeline.admitted(self.updates):
            turn = self.schedule.turn(update - self.updates)
            if turn is None or not self._samples(turn):
                return  # the phase ends before
            self._pipeline.give(update, self._jobs(update, turn))

    def _jobs(self, update: int, turn: Turn) -> list[Job]:
        """The shards of an update."""
        sampler, needs = self.config.sampler, self._needs
        return [
            Job(
                update,
                shard,
                part,
                selections=sampler.selections if turn.policy else 1,
                scored=turn.policy,
                thresholded=turn.policy and needs.thresholded,
                bitwise=turn.policy and needs.bits and sampler.max_policy_lag > 0,
                antithetic=turn.policy and needs.antithetic,
            )
            for shard, part in enumerate(np.array_split(self._order.rows(update), sampler.shards))
            if len(part)
        ]

    def _evaluate(self) -> Evaluated:
        """Score dev; it is the best of the phase, or not."""
        schedule = self.schedule
        mode: Mode = "thresholded" if schedule.phase.selects else "all"
        started = time.perf_counter()
        metrics, showcase = self.learner.evaluate("dev", [mode]), ""
        scalars = {f"dev/{mode}/{name}": value for name, value in metrics[mode].items()}
        scalars["time/evaluate_s"] = time.perf_counter() - started
        if mode == "thresholded":
            if schedule.phase.policy:
                self.share.scored(metrics[mode]["kept"])
            showcase = self.learner.showcase()
            schedule.observe(-merit(metrics[mode]["reward"], metrics[mode], self.config.reward))
        else:
            schedule.observe(metrics[mode]["loss"])
        self._evaluation_due = False
        self._is_best_here = best = self._is_best(metrics[mode])
        return Evaluated(
            schedule.phase.name, self.updates, metrics, best, scalars, showcase, schedule.ending
        )

    def _is_best(self, metrics: dict[str, float]) -> bool:
        value = metrics.get(self._best_metric.name, math.nan)
        if not math.isfinite(value):
            # A correlation is undefined if all predictions are equal. The checkpoint at the begin
            # of a phase is marked even so, as the end of the phase loads the marked one.
            return self.schedule.steps == 0
        value = -value if self._best_metric.lower_is_better else value
        if self.schedule.phase.selects:
            value = merit(value, metrics, self.config.reward)
        if self._best is not None and value <= self._best:
            return False
        self._best = value
        return True

    def _end_phase(self) -> None:
        """Begin the next phase, with the best weights of this one and the lambda that led to them
        where that is asked for.
        """
        schedule = self.schedule
        self._pipeline.forget()
        if schedule.phase.restore_best or schedule.is_last:
            best = self._marked(BEST_OF_PHASE)
            self.learner.load_tensors(best.tensors)
            self.share.load_state_dict(best.state["share"])
        schedule.advance()
        self._evaluation_due, self._best, self._is_best_here = True, None, False

    def _due(self, every: int) -> bool:
        return self.schedule.steps % every == 0

    def checkpoint(self) -> Saved:
        """The current state, marked if it is the best of the phase, or of the run."""
        self._saved, marks = self.updates, []
        if self._is_best_here:
            marks += [BEST_OF_PHASE, *[BEST] * self.schedule.is_last]
        return Saved(self.updates, self.learner.tensors(), self.state(), tuple(marks))

    def state(self) -> dict[str, Any]:
        """The state that a checkpoint holds besides tensors."""
        return {
            "updates": self.updates,
            "schedule": self.schedule.state_dict(),
            "share": self.share.state_dict(),
            "evaluation_due": self._evaluation_due,
            "best": self._best,
            "is_best_here": self._is_best_here,
            "trained_s": self.trained_s,
            "wall_s": self.wall_seconds,
            "seen": self.seen,
        }

    def _restore(self, checkpoint: Checkpoint) -> None:
        self.learner.load_tensors(checkpoint.tensors)
        state = checkpoint.state
        self.updates = state["updates"]
        self.schedule.load_state_dict(state["schedule"])
        self.share.load_state_dict(state["share"])
        self._evaluation_due, self._best = state["evaluation_due"], state["best"]
        self._is_best_here = state["is_best_here"]
        self.trained_s, self.seen = state["trained_s"], state["seen"]
        self._wall_before_s, self._saved = state["wall_s"], self.updates

    @property
    def wall_seconds(self) -> float:
        """Wall time of this run, including evaluations and the time before it was resumed."""
        return self._wall_before_s + time.monotonic() - self._began


def fork_state(state: dict[str, Any]) -> dict[str, Any]:
    """The state at the end of the first phase, as that of another run without a share asked for."""
    schedule = {"index": 1, "steps": 0, "best": None, "stale": 0}
    fresh = {"evaluation_due": True, "best": None, "is_best_here": False, "metric_rows": 0}
    return state | fresh | {"schedule": schedule, "share": {}, "marks": []}
