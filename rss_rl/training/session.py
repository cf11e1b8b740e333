"""The state of a training run, and what one update does to it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rss_rl.config import RunConfig
from rss_rl.data.batch_order import BatchOrder
from rss_rl.data.store import Prepared
from rss_rl.errors import NonFiniteError
from rss_rl.learners.phases import PhaseSchedule, Turn
from rss_rl.learners.share_control import Reached, ShareController
from rss_rl.learners.updates import Needs
from rss_rl.rollouts.backend import Backend
from rss_rl.rollouts.rollout import Job
from rss_rl.runs.checkpoint import Checkpoint
from rss_rl.training.learner import Charge, Learner, LearnTask
from rss_rl.training.pipeline import RolloutPipeline
from rss_rl.types import Array


@dataclass(frozen=True)
class UpdateReport:
    """Of one update: its number (from 1), its phase, the rows learnt from, and metrics by tag."""

    update: int
    phase: str
    rows: Array
    scalars: dict[str, float]

    @property
    def examples(self) -> int:
        """How many examples were learnt from."""
        return len(self.rows)


class Session:
    """Learner, samplers, phase schedule and position in the data of a run.

    Update u learns from batch u of the data, in every phase, so the number of updates alone says
    where the run is. It is the policy's version as well.

    Args:
        backend: called with no arguments when the first selection is to be sampled, so that a run
            that samples nothing starts no samplers.
    """

    def __init__(
        self,
        config: RunConfig,
        prepared: Prepared,
        learner: Learner,
        backend: Callable[[], Backend],
    ) -> None:
        self.config = config
        self.learner = learner
        self.schedule = PhaseSchedule(config.phases)
        self.update_count = 0
        steered = config.reward.target_share is not None
        self.share = ShareController(config.reward, config.policy_updates) if steered else None
        sampler = config.sampler
        self._needs = Needs.of(config.estimator)
        self._order = BatchOrder(
            prepared.split("train"),
            config.batch_size,
            config.seed,
            batch_tokens=config.batch_tokens,
            reach=sampler.max_policy_lag,
            by_length=config.settled_lengths == "similar",
        )
        self._pipeline = RolloutPipeline(backend, config.sampler)
        self._publishing: dict[str, float] = {}  # metrics of the newest snapshot, not reported yet

    def close(self) -> None:
        """Release the samplers."""
        self._pipeline.close()

    def update(self) -> UpdateReport:
        """One update of the present phase: take its rollout, learn from it, publish.

        Its jobs were given at the end of an update before; those of a phase's first update are
        given here.

        Raises:
            NonFiniteError: naming phase, update and rows; of two learners the first may have
                learnt from the batch, so the run must not continue from here.
        """
        turn, phase = self.schedule.turn(), self.schedule.phase.name
        assert turn is not None
        started = time.perf_counter()
        scalars: dict[str, float] = {"phase/index": self.schedule.index}
        try:
            if self._asks_samplers(turn):
                self._supply_samplers()
                rollout, taken = self._pipeline.take(self.update_count)
                rows = rollout.rows
                scalars |= taken | self._publishing
                self._publishing = {}
            else:
                rollout, rows = None, self._order.rows(self.update_count)
            charge = None if self.share is None else Charge(self.share.target, self.share.costs)
            task = LearnTask(self.update_count, rows, turn, rollout, charge)
            scalars |= self.learner.update(task)
            if turn.policy:
                scalars |= self._steer(scalars)
        except NonFiniteError as error:
            rows = self._order.rows(self.update_count)
            raise NonFiniteError(
                error.what,
                where=f"phase {phase}, update {self.update_count + 1}, rows {rows[:4].tolist()}..."
                + (f", {error.where}" if error.where else ""),
                remedy="Lower the learning rate or the clip norm",
            ) from error
        self.update_count += 1
        self.schedule.count()
        # Before anything else is done, so that samplers work while dev is scored or a file saved.
        self._supply_samplers()
        if self._asks_samplers(turn):
            elapsed = time.perf_counter() - started
            scalars["learner/idle_share"] = scalars["time/sample_s"] / elapsed
        return UpdateReport(self.update_count, phase, rows, scalars)

    def _steer(self, scalars: Mapping[str, float]) -> dict[str, float]:
        """Let lambda follow what was kept; here, so that it is one for all learners."""
        if self.share is None:
            return {}
        margins = scalars["selection/margin_heads"], scalars["selection/margin_dependents"]
        self.share.observe(Reached(scalars["selection/thresholded_kept"], margins))
        return self.share.scalars

    def _asks_samplers(self, turn: Turn | None) -> bool:
        """Whether an update needs rollouts."""
        return turn is not None and turn.sampled and self._needs.log_probs

    def _supply_samplers(self) -> None:
        """Publish if it is due, and hand over the jobs of all updates that may be sampled now."""
        if not self._asks_samplers(self.schedule.turn()):
            return
        published = self._pipeline.published
        behind = None if published is None else self.update_count - published
        if behind is None or behind >= self.config.sampler.publish_every:
            self._pipeline.start()
            started = time.perf_counter()
            snapshot = self.learner.publish(self.update_count, whole=published is None)
            if self.share is not None:
                snapshot = replace(snapshot, charged=self.share.costs)
            self._pipeline.publish(snapshot)
            self._publishing = {
                "publish/duration_ms": 1000 * (time.perf_counter() - started),
                "publish/bytes": snapshot.bytes,
            }
        for update in self._pipeline.admitted(self.update_count):
            jobs = self._jobs(update)
            if not jobs:
                return
            self._pipeline.give(update, jobs)

    def _jobs(self, update: int) -> list[Job]:
        """The shards of an update of the present phase; none beyond its end."""
        turn = self.schedule.turn(update - self.update_count)
        if turn is None or not self._asks_samplers(turn):
            return []
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

    def end_phase(self, restored: Checkpoint | None = None) -> None:
        """Begin the next phase, with the weights of `restored` and the lambda they were led by.

        Raises:
            CheckpointError: the tensors do not fit.
        """
        self._pipeline.forget()
        if restored is not None:
            self.learner.load_tensors(restored.tensors)
            if self.share is not None:
                self.share.load_state_dict(restored.state["session"]["share"])
        self.schedule.advance()

    def state(self) -> dict[str, Any]:
        """All but the learner's tensors, as JSON data."""
        state = {"update": self.update_count, "schedule": self.schedule.state_dict()}
        return state if self.share is None else state | {"share": self.share.state_dict()}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Restore `state`."""
        self._pipeline.forget()
        self.update_count = state["update"]
        self.schedule.load_state_dict(state["schedule"])
        if self.share is not None:
            self.share.load_state_dict(state["share"])
