"""The state of a training run, and what one update does to it.

Legend: K selections an example, B examples of an update, S sentences, N_s tokens of slot s.
"""

from __future__ import annotations

__all__ = ["Session", "UpdateReport"]

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from envs.core import kept_shares
from learners.optim import load_optimizer_tensors, optimizer_tensors
from learners.phases import PhaseSchedule, Turn
from learners.policy_gradient import PolicyGradientLearner, RewardBatch
from learners.supervised import SupervisedLearner
from rss_rl.config import RunConfig
from rss_rl.data.order import BatchOrder
from rss_rl.data.store import Prepared
from rss_rl.errors import CheckpointError, NonFiniteError
from rss_rl.models.inputs import TensorBatch, tensor_batch, to_tensors
from rss_rl.runtime.backend import Backend
from rss_rl.runtime.cursor import BatchCursor
from rss_rl.runtime.device import find_device
from rss_rl.runtime.rollouts import Rollout, SampleJob, join_rollouts
from rss_rl.runtime.snapshot import autocast_dtype, build_prepared_models, fixed_threads
from rss_rl.runtime.weights import load_weights, select_prefix
from rss_rl.seeding import stream_key
from rss_rl.types import Array, Batch


@dataclass(frozen=True)
class UpdateReport:
    """Of one update: its number (from 1), its phase, how many examples, and metrics by tag."""

    update: int
    phase: str
    examples: int
    scalars: dict[str, float]


class Session:
    """Models, learners, phase schedule and data cursor of a run.

    Args:
        backend: called with no arguments when the first selection is to be sampled, so that a run
            that samples nothing starts no samplers.
    """

    def __init__(
        self, config: RunConfig, prepared: Prepared, backend: Callable[[], Backend]
    ) -> None:
        self.config = config
        self.device = find_device(config.learner.device)
        self.examples = prepared.split("train")
        self.models = build_prepared_models(config, prepared)
        self.models.classifier.to(self.device)
        self.models.policy.to(self.device)
        dtype = autocast_dtype(config.learner.precision)
        self._supervised = SupervisedLearner(
            self.models.classifier,
            config.learner.supervised,
            dtype,
            config.learner.weight_average,
        )
        self._policy: PolicyGradientLearner | None = None
        if any(phase.policy for phase in config.phases):
            self._policy = PolicyGradientLearner(
                self.models.policy, self.models.classifier.embedding, config.learner, dtype
            )
        self.schedule = PhaseSchedule(config.phases)
        self._cursor = BatchCursor(BatchOrder(self.examples, config.batch_size, config.seed))
        self._make_backend = backend
        self._backend: Backend | None = None
        self.update_count = 0
        self.version = 0

    @property
    def backend(self) -> Backend:
        """The source of rollouts, made at its first use."""
        if self._backend is None:
            self._backend = self._make_backend()
        return self._backend

    def close(self) -> None:
        """Release the samplers."""
        if self._backend is not None:
            self._backend.close()
            self._backend = None

    def update(self) -> UpdateReport:
        """Sample, learn, publish: one update of the present phase.

        Raises:
            NonFiniteError: naming phase, update and rows; nothing was learnt from the bad batch.
        """
        turn, phase = self.schedule.turn(), self.schedule.phase.name
        rows = self._cursor.rows()
        self._cursor.advance()
        scalars: dict[str, float] = {"phase/index": self.schedule.index}
        try:
            rollout = self._sample(rows, turn, scalars) if turn.sampled else None
            with fixed_threads(self.config.learner.threads):
                self._learn(rows, turn, rollout, scalars)
        except NonFiniteError as error:
            raise NonFiniteError(
                error.what,
                where=f"phase {phase}, update {self.update_count + 1}, rows {rows[:4].tolist()}...",
                remedy="Lower the learning rate or the clip norm",
            ) from error
        self.update_count += 1
        self.version += 1
        self.schedule.count()
        return UpdateReport(self.update_count, phase, len(rows), scalars)

    def _sample(self, rows: Array, turn: Turn, scalars: dict[str, float]) -> Rollout:
        started = time.perf_counter()
        snapshot = self.models.publish(self.version)
        scalars["time/publish_s"] = time.perf_counter() - started
        thresholded = turn.policy and self.config.learner.baseline == "self-critical"
        count = self.config.sampler.selections if turn.policy else 1
        jobs = [
            SampleJob(self.update_count, shard, part, count, turn.policy, thresholded)
            for shard, part in enumerate(np.array_split(rows, self.config.sampler.shards))
            if len(part)
        ]
        started = time.perf_counter()
        batches = self.backend.sample(jobs, snapshot)
        rollouts = [Rollout.from_arrow(batch) for batch in batches]
        rollout = join_rollouts(rollouts)
        scalars["time/sample_s"] = time.perf_counter() - started
        scalars["policy/version"] = rollout.version
        scalars["policy/lag"] = self.version - float(np.mean([r.version for r in rollouts]))
        scalars["policy/lag_max"] = self.version - rollout.version
        scalars["sampler/restarts"] = self.backend.restarts
        return rollout

    def _learn(
        self, rows: Array, turn: Turn, rollout: Rollout | None, scalars: dict[str, float]
    ) -> None:
        started = time.perf_counter()
        batch = self.examples.batch(rows)
        tensors = tensor_batch(batch, self.device)
        selections = None
        if rollout is not None:
            selections = to_tensors(rollout.selections, self.device)
            scalars |= _shares(rollout, batch)
        if turn.policy and rollout is not None:
            scalars |= self._learn_policy(tensors, rollout, selections or [])
        if turn.supervised:
            first = None if selections is None else [s[0] for s in selections]
            seed = stream_key(self.config.seed, "dropout", self.update_count)
            stats = self._supervised.update(
                tensors, first, number=self.update_count, dropout_seed=seed
            )
            scalars["train/loss"] = stats.loss
            scalars["train/gradient_norm"] = stats.gradient_norm
            if self.examples.labels.kind == "classes":
                hits = stats.predictions == tensors.labels
                scalars["train/accuracy"] = float(hits.float().mean())
        scalars["time/learn_s"] = time.perf_counter() - started

    def _learn_policy(
        self, tensors: TensorBatch, rollout: Rollout, selections: list[torch.Tensor]
    ) -> dict[str, float]:
        assert self._policy is not None
        paid_rewards, thresholded = to_tensors([rollout.rewards, rollout.thresholded], self.device)
        asked = self.config.learner.baseline == "self-critical"
        paid = RewardBatch(selections, paid_rewards, thresholded if asked else None)
        stats = self._policy.update(tensors, paid, number=self.update_count)
        total = rollout.log_likelihood - rollout.sparsity_cost.sum(-1)
        return {
            "policy/loss": stats.loss,
            "policy/gradient_norm": stats.gradient_norm,
            "policy/entropy": stats.entropy,
            "policy/advantage_std": stats.advantage_std,
            "reward/total": float(total.mean()),
            "reward/log_likelihood": float(rollout.log_likelihood.mean()),
            "reward/sparsity_cost": float(rollout.sparsity_cost.sum(-1).mean()),
        }

    def tensors(self) -> dict[str, torch.Tensor]:
        """Everything that is a tensor, by name."""
        named = {f"classifier/{k}": v for k, v in self.models.classifier.state_dict().items()}
        named |= {f"policy/{k}": v for k, v in self.models.policy.state_dict().items()}
        named |= {f"learning/{k}": v for k, v in self._supervised.tensors().items()}
        for name, step in self._steps().items():
            state = optimizer_tensors(step.optimizer)
            named |= {f"optimizer/{name}/{key}": value for key, value in state.items()}
        if self._policy is not None:
            named["baseline/average"] = self._policy.average
        return named

    def _steps(self) -> dict[str, Any]:
        steps = {"supervised": self._supervised.step}
        if self._policy is not None:
            steps["policy"] = self._policy.step
        return steps

    def state(self) -> dict[str, Any]:
        """Everything else, as JSON data."""
        return {
            "update": self.update_count,
            "version": self.version,
            "schedule": self.schedule.state_dict(),
            "cursor": self._cursor.state_dict(),
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Restore `state`."""
        self.update_count, self.version = state["update"], state["version"]
        self.schedule.load_state_dict(state["schedule"])
        self._cursor.load_state_dict(state["cursor"])

    def load_tensors(self, tensors: Mapping[str, Array]) -> None:
        """Restore `tensors`: weights, optimisers and baseline.

        Raises:
            CheckpointError: when they do not fit the modules.
        """
        load_weights(self.models, tensors, self.device)
        try:
            self._supervised.load_tensors(select_prefix(tensors, "learning/", self.device))
        except RuntimeError as error:
            raise CheckpointError(
                "the learning copy of the classifier does not fit",
                remedy="Resume with the weight_average the run was started with",
            ) from error
        for name, step in self._steps().items():
            mine = select_prefix(tensors, f"optimizer/{name}/", self.device)
            load_optimizer_tensors(step.optimizer, mine)
        if self._policy is not None and "baseline/average" in tensors:
            self._policy.average = torch.from_numpy(np.array(tensors["baseline/average"]))


def _shares(rollout: Rollout, batch: Batch) -> dict[str, float]:
    """Shares of tokens kept by the sampled selections, averaged over selections and examples."""
    samples = len(rollout.log_likelihood)
    flat = [s.reshape(-1, *s.shape[2:]) for s in rollout.selections]  # S x [K * B, 2, N_s]
    shares = kept_shares(flat, batch.repeat(samples).valid)
    return {
        "selection/kept": float(shares.kept.mean()),
        "selection/heads_kept": float(shares.heads.mean()),
        "selection/dependents_kept": float(shares.dependents.mean()),
    }
