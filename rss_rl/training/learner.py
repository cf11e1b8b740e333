"""The learner: both updates, and the weights they lead to, in this process.

Legend: K selections an example, B examples of an update, S sentences, N_s tokens of slot s.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch

from rss_rl.config import RunConfig
from rss_rl.data.store import Prepared
from rss_rl.envs.rewards import kept_shares
from rss_rl.envs.task import SelectionTask
from rss_rl.errors import CheckpointError, ConfigError
from rss_rl.learners.group import ALONE, Group, shard
from rss_rl.learners.optim import load_optimizer_tensors, optimizer_tensors
from rss_rl.learners.pathwise import GatedReward, PathwiseLearner
from rss_rl.learners.phases import Turn
from rss_rl.learners.policy_gradient import PolicyGradientLearner, RewardBatch
from rss_rl.learners.supervised import SupervisedLearner
from rss_rl.models.inputs import TensorBatch, tensor_batch, to_tensors
from rss_rl.policies.estimators import GateEstimator, LogProbEstimator, build_estimator
from rss_rl.policies.protocol import bits_per_token
from rss_rl.rollouts.checkpoint_weights import load_weights, select_prefix
from rss_rl.rollouts.device import find_device
from rss_rl.rollouts.rollout import Rollout
from rss_rl.rollouts.sampler import selection_uniforms
from rss_rl.rollouts.snapshot import (
    CLASSIFIER,
    POLICY,
    WORDS,
    Models,
    Publisher,
    Snapshot,
    StoredSnapshot,
    autocast_dtype,
    build_prepared_models,
    fixed_threads,
)
from rss_rl.rollouts.tasks import run_task
from rss_rl.seeding import example_keys
from rss_rl.training.allocator import keep_freed_memory
from rss_rl.training.evaluation import Mode, evaluate
from rss_rl.training.policy_learning import (
    check_learns,
    pathwise_scalars,
    policy_scalars,
    reached_share,
    thresholded_selections,
)
from rss_rl.training.random_selections import mix_selections, random_selections
from rss_rl.training.showcase import Showcase, make_showcase
from rss_rl.types import Array, Batch


class Charge(NamedTuple):
    """The share of the tokens to keep, and lambda of heads and of dependents that leads there."""

    target: float
    costs: tuple[float, float]


@dataclass(frozen=True)
class LearnTask:
    """What one update learns from.

    number   of the update in the run, from 0; the target policy's version
    rows     int64 [B]
    turn     who learns
    rollout  of `rows`; None where nothing was sampled
    charge   where a target share steers the policy
    """

    number: int
    rows: Array
    turn: Turn
    rollout: Rollout | None = None
    charge: Charge | None = None


class Learner(Protocol):
    """Whoever applies updates and holds the newest weights."""

    def update(self, task: LearnTask) -> dict[str, float]:
        """One update of the classifier, the policy or both; metrics by tag.

        Raises:
            NonFiniteError: a loss or gradient is not finite; no parameter has changed by it.
            LearnersLostError: a learner process died or hung.
        """

    def publish(self, version: int, *, whole: bool = True) -> Snapshot | StoredSnapshot:
        """The present weights under a version; unless `whole`, what changed since the last call."""

    def evaluate(self, split: str, modes: Sequence[Mode]) -> dict[str, dict[str, float]]:
        """Scores of a split by the present weights; see `evaluation.evaluate`."""

    def showcase(self) -> Showcase:
        """What the policy does on dev, to be looked at."""

    def tensors(self) -> dict[str, Any]:
        """All that is learnt and how, as named tensors: weights, optimisers, baseline."""

    def load_tensors(self, tensors: Mapping[str, Array]) -> None:
        """Restore `tensors`.

        Raises:
            CheckpointError: they do not fit.
        """


class LocalLearner:
    """A learner in this process, on the device of the configuration.

    Args:
        group: of learners that share each batch; all of them must be given the same tasks.

    `before_steps` is called in each update before the first parameter changes.
    """

    def __init__(self, config: RunConfig, prepared: Prepared, group: Group = ALONE) -> None:
        keep_freed_memory()
        self.config, self._prepared, self._group = config, prepared, group
        self.before_steps: Callable[[], None] = lambda: None
        self.device = find_device(config.learner.device)
        self.examples = prepared.split("train")
        self.models: Models = build_prepared_models(config, prepared)
        self.models.classifier.to(self.device)
        self.models.policy.to(self.device)
        dtype = autocast_dtype(self.device, config.learner.precision)
        self._supervised = SupervisedLearner(
            self.models.classifier,
            config.learner.supervised,
            dtype,
            config.learner.weight_average,
            group,
            distillation=config.learner.distillation,
        )
        self._publisher = Publisher(self.models, resident=config.sampler.backend == "local")
        self._policy: PolicyGradientLearner | None = None
        self._pathwise: PathwiseLearner | None = None
        check_learns(self.models, config)
        self._estimator = build_estimator(config.estimator, config.sampler.selections)
        if isinstance(self._estimator, GateEstimator):
            if any(phase.selection == "sampled" for phase in config.phases):
                self._pathwise = PathwiseLearner(
                    self.models.policy,
                    self.models.classifier,
                    config,
                    dtype,
                    group,
                    None if config.reward.model.can("classifier") else self._gated_reward(),
                )
        elif any(phase.policy for phase in config.phases):
            self._policy = PolicyGradientLearner(
                self.models.policy,
                self.models.classifier.embedding,
                config.learner,
                dtype,
                group,
                estimator=self._estimator,
                reads=self.models.reads,
            )

    def update(self, task: LearnTask) -> dict[str, float]:
        """See `Learner`."""
        started = time.perf_counter()
        with fixed_threads(self.config.learner.threads):
            scalars = self._learn(task)
        return scalars | {"time/learn_s": time.perf_counter() - started}

    def _learn(self, task: LearnTask) -> dict[str, float]:
        """Learns from this learner's shard of the batch; metrics are those of the whole.

        Classifier and policy step when both have learnt: until then nothing has changed.
        """
        scalars, steps = self._gradients(task)
        self.before_steps()
        for step in steps:
            step()
        return scalars

    def _gradients(self, task: LearnTask) -> tuple[dict[str, float], list[Callable[[], None]]]:
        """Metrics, and the steps that apply the gradients."""
        steps: list[Callable[[], None]] = []
        mine = shard(np.arange(len(task.rows)), self._group.rank, self._group.size)
        rows = task.rows[mine]
        batch = self.examples.batch(rows)
        tensors = tensor_batch(batch, self.device)
        scalars: dict[str, float] = {}
        selections = None
        steered = task.turn.policy and task.charge is not None
        apart = len(rows) < len(task.rows) and (steered or task.rollout is not None)
        whole = self.examples.batch(task.rows) if apart else batch
        if task.rollout is not None:
            part = task.rollout.of(mine, [tokens.shape[1] for tokens in batch.tokens])
            selections = to_tensors(part.selections, self.device)
            if task.turn.policy:
                scalars |= self._learn_policy(task, tensors, part, selections)
                steps.append(self._step_policy)
                scalars |= _rewards(task.rollout)
            scalars |= _shares(task.rollout, whole)
        first = None if selections is None else [s[0] for s in selections]
        if task.turn.sampled and self._pathwise is not None:
            uniforms = selection_uniforms(
                self.config.seed, task.number, batch, self.config.sampler.selections, self.device
            )
            if task.turn.policy:
                charged = None if task.charge is None else task.charge.costs
                stats = self._pathwise.learn(tensors, uniforms, number=task.number, charged=charged)
                scalars |= pathwise_scalars(stats)
                steps.append(self._step_policy)
            # By the same policy, before its step: policy and classifier share one objective.
            first = self._pathwise.draw(tensors, uniforms)
        if steered and task.charge is not None:
            seen = tensor_batch(whole, self.device) if apart else tensors
            scalars |= reached_share(self.models, self.config, seen, task.charge.target)
        if task.turn.supervised:
            if task.turn.thresholded:
                first = thresholded_selections(self.models, self.config, tensors)
            if task.turn.random_share:
                drawn = random_selections(
                    self.config.seed,
                    task.number,
                    batch,
                    bits_per_token(self.models.policy),
                    task.turn.random_share,
                )
                first = mix_selections(first, drawn, self.device)
            scalars |= self._learn_classifier(task.number, rows, tensors, first)
            steps.append(partial(self._step_classifier, task.number))
        return scalars, steps

    def _step_policy(self) -> None:
        learner = self._policy or self._pathwise
        assert learner is not None
        learner.apply()
        self._publisher.note(POLICY)

    def _step_classifier(self, number: int) -> None:
        self._supervised.apply(number)
        self._publisher.note(CLASSIFIER)
        self._publisher.note(WORDS, self._supervised.moved_words)

    def _learn_classifier(
        self, number: int, rows: Array, tensors: TensorBatch, first: list[torch.Tensor] | None
    ) -> dict[str, float]:
        keys = example_keys(self.config.seed, "dropout", number, rows)
        (dropout_keys,) = to_tensors([keys], self.device)
        stats = self._supervised.learn(tensors, first, number=number, dropout_keys=dropout_keys)
        scalars = {"train/loss": stats.loss, "train/gradient_norm": stats.gradient_norm}
        if stats.accuracy is not None:
            scalars["train/accuracy"] = stats.accuracy
        return scalars

    def _learn_policy(
        self,
        task: LearnTask,
        tensors: TensorBatch,
        rollout: Rollout,
        selections: list[torch.Tensor],
    ) -> dict[str, float]:
        assert self._policy is not None
        learnt = rollout if task.charge is None else rollout.uncharged()
        rewards, thresholded = to_tensors([learnt.rewards, learnt.thresholded], self.device)
        estimator, behaviour = self._estimator, None
        assert isinstance(estimator, LogProbEstimator)
        if rollout.version < task.number:  # else the policy itself drew them
            parts = (
                rollout.bit_log_prob if estimator.bitwise else np.moveaxis(rollout.log_prob, -1, 0)
            )
            behaviour = to_tensors([np.ascontiguousarray(part) for part in parts], self.device)
        reward_batch = RewardBatch(
            selections,
            rewards,
            thresholded if estimator.thresholded else None,
            behaviour,
            charged=None if task.charge is None else task.charge.costs,
        )
        return policy_scalars(self._policy.learn(tensors, reward_batch, number=task.number))

    def publish(self, version: int, *, whole: bool = True) -> Snapshot:
        """See `Learner`."""
        return self._publisher.publish(version, whole=whole)

    def evaluate(self, split: str, modes: Sequence[Mode]) -> dict[str, dict[str, float]]:
        """See `Learner`."""
        examples = self._prepared.split(split)
        return evaluate(
            self.models, examples, self.config, modes, device=self.device, task=self._task
        )

    def _gated_reward(self) -> GatedReward:
        model = self._task.model
        if not isinstance(model, GatedReward):
            raise ConfigError(
                "cannot be learnt through gates with these options",
                where=f"reward.model '{self.config.reward.model.name}'",
                remedy="Set learner.estimator to one that learns from rewards, such as reinforce",
            )
        return model

    @cached_property
    def _task(self) -> SelectionTask:
        """Built where it is asked for: a reward model may load much."""
        words = self._prepared.vocabulary.words
        return run_task(self.config, self.models, self.examples, words, self.device)

    def showcase(self) -> Showcase:
        """See `Learner`."""
        dev = self._prepared.split("dev")
        return make_showcase(self.models, dev, self.device, self.config.predicts)

    def tensors(self) -> dict[str, Any]:
        """See `Learner`."""
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
        learner = self._policy or self._pathwise
        if learner is not None:
            steps["policy"] = learner.step
        return steps

    def load_tensors(self, tensors: Mapping[str, Array]) -> None:
        """See `Learner`."""
        self._publisher.note_all()
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


def _rewards(rollout: Rollout) -> dict[str, float]:
    """Means of the reward and of its terms, those of costs summed over the sentences."""
    total = rollout.score - rollout.cost.sum(-1)
    scores = {f"reward/{name}": float(each.mean()) for name, each in rollout.scores.items()}
    costs = {f"reward/{name}": float(each.sum(-1).mean()) for name, each in rollout.costs.items()}
    return {"reward/total": float(total.mean()), **scores, **costs}


def _shares(rollout: Rollout, batch: Batch) -> dict[str, float]:
    """Shares of tokens kept by the sampled selections, averaged over selections and examples."""
    flat = [s.reshape(-1, *s.shape[2:]) for s in rollout.selections]  # S x [K * B, 2, N_s]
    shares = kept_shares(flat, batch.repeat(rollout.samples).valid)
    return {
        "selection/kept": float(shares.kept.mean()),
        "selection/heads_kept": float(shares.heads.mean()),
        "selection/dependents_kept": float(shares.dependents.mean()),
    }
