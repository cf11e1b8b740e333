"""The learner: both updates, and the weights they lead to, in this process.

Legend: K selections an example, B examples of an update, S sentences, N_s tokens of slot s.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, Literal, Protocol

import numpy as np
import torch

from rss_rl.config import RewardConfig, RunConfig
from rss_rl.data.store import Prepared, Split
from rss_rl.envs.rewards import cost_terms, kept_shares
from rss_rl.envs.task import SelectionTask
from rss_rl.errors import CheckpointError, ConfigError
from rss_rl.learners.group import ALONE, Group, shard
from rss_rl.learners.phases import Turn
from rss_rl.learners.supervised import SupervisedLearner
from rss_rl.learners.updates import (
    GatedReward,
    Gradients,
    PolicyUpdate,
    RewardBatch,
    UpdateSetup,
    build_update,
    read,
)
from rss_rl.models.inputs import TensorBatch, tensor_batch, to_tensors
from rss_rl.policies.distributions import selection_uniforms
from rss_rl.policies.policy import PolicyInputs, bits_per_token
from rss_rl.reading.device import (
    autocast,
    autocast_dtype,
    check_threads,
    find_device,
    fixed_threads,
    keep_freed_memory,
)
from rss_rl.reading.models import (
    Models,
    build_prepared_models,
    load_weights,
    select_prefix,
)
from rss_rl.reward_models.reward_model import Rewards
from rss_rl.rollouts.rollout import Rollout
from rss_rl.rollouts.sampler import run_task
from rss_rl.rollouts.snapshot import CLASSIFIER, POLICY, WORDS, Publisher, Snapshot, StoredSnapshot
from rss_rl.seeding import example_keys
from rss_rl.training.evaluation import Mode, evaluate
from rss_rl.training.selections import (
    check_learns,
    random_selections,
    reached_share,
    thresholded_selections,
)
from rss_rl.training.showcase import make_showcase
from rss_rl.types import Array, Batch

_TRIED = 8
"""Examples by which a policy is checked before the run."""
POLICY_UPDATE = "policy_update/"
"""Prefix of the tensors that hold the state of the policy update."""


class Learner(Protocol):
    """Whoever applies updates and holds the newest weights."""

    def update(
        self, number: int, rows: Array, turn: Turn, rollout: Rollout | None = None
    ) -> dict[str, float]:
        """One update of the classifier, the policy or both; metrics by tag.

        Args:
            number: of the update in the run, from 0; the target policy's version.
            rows: int64 [B].
            turn: who learns, and how.
            rollout: of `rows`; None where nothing was sampled.

        Raises:
            NonFiniteError: a loss or gradient is not finite; no parameter has changed by it.
            LearnersLostError: a learner process died or hung.
        """

    def publish(self, version: int, *, full: bool = True) -> Snapshot | StoredSnapshot:
        """The present weights under a version; unless `full`, what changed since the last call."""

    def evaluate(self, split: str, modes: Sequence[Mode]) -> dict[str, dict[str, float]]:
        """Scores of a split by the present weights; see `evaluation.evaluate`."""

    def showcase(self) -> str:
        """Sentences of dev with the words that the policy selects, Markdown."""

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
    """

    def __init__(self, config: RunConfig, prepared: Prepared, group: Group = ALONE) -> None:
        keep_freed_memory()
        self.config, self._prepared, self._group = config, prepared, group
        self.device = find_device(config.learner.device)
        check_threads(config.learner.threads, "learner.threads")
        self.examples = prepared.split("train")
        self._weights = example_weights(self.examples, config.learner.class_weight)
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
        few = self.examples.batch(np.arange(min(_TRIED, len(self.examples))))
        check_learns(self.models, config, tensor_batch(few, self.device))
        self._update: PolicyUpdate | None = None
        if any(phase.policy for phase in config.phases):
            self._update = build_update(config.policy_update, self._update_setup(dtype))

    def _update_setup(self, dtype: torch.dtype | None) -> UpdateSetup:
        return UpdateSetup(
            self.models.policy,
            self.config.learner,
            self.config.reward,
            dtype,
            self._group,
            self._uniforms,
            self._gated_reward,
        )

    def _uniforms(self, batch: TensorBatch, number: int) -> list[torch.Tensor]:
        """The numbers that an update draws selections or gates by, S x [K, B, 2, N_s]."""
        assert batch.rows is not None
        widths = [valid.shape[1] for valid in batch.valid]
        count = self.config.sampler.selections
        return selection_uniforms(self.config.seed, number, batch.rows, widths, count, self.device)

    def update(
        self, number: int, rows: Array, turn: Turn, rollout: Rollout | None = None
    ) -> dict[str, float]:
        """See `Learner`.

        It learns from this learner's shard of the batch; metrics are those of all of it. Classifier
        and policy step when both have learnt: until then nothing has changed.
        """
        started = time.perf_counter()
        with fixed_threads(self.config.learner.threads):
            mine = shard(np.arange(len(rows)), self._group.rank, self._group.size)
            batch = self.examples.batch(rows[mine])
            alone = len(mine) == len(rows) or not turn.sampled
            global_batch = batch if alone else self.examples.batch(rows)
            tensors = tensor_batch(batch, self.device)._replace(shard_of=len(rows))
            weights = None if self._weights is None else self._weights[rows]
            if weights is not None:
                tensors = tensors._replace(weights=to_tensors([weights[mine]], self.device)[0])
            gradients: list[Gradients] = []
            scalars: dict[str, float] = {}
            part, drawn = None, None
            if rollout is not None:
                part = self._part(rollout, mine, batch, number)
                drawn = [selection[0] for selection in part.selections]
            update = self._update if turn.policy else None
            if update is not None:
                inputs = self._policy_inputs(tensors)
                learnt = update.gradients(tensors, inputs, part, number=number, price=turn.price)
                gradients.append(learnt)
                drawn = drawn or learnt.gates
                if turn.target is not None:
                    if not alone:
                        inputs = self._policy_inputs(tensor_batch(global_batch, self.device))
                    scalars |= reached_share(self.models, self.config, inputs, turn.target)
            if turn.supervised:
                selections = self._classifier_reads(turn, number, batch, tensors, drawn)
                keys = example_keys(self.config.seed, "dropout", number, batch.rows)
                learnt = self._supervised.gradients(
                    tensors,
                    selections,
                    number=number,
                    dropout_keys=to_tensors([keys], self.device)[0],
                )
                gradients.append(learnt)
            scalars |= read(gradients)
            if rollout is not None:
                costs = self.config.reward, turn.price
                scalars |= _rollout_scalars(rollout, global_batch, *costs, weights)
            if update is not None:
                update.apply()
                self._publisher.note(POLICY)
            if turn.supervised:
                self._supervised.apply(number)
                self._publisher.note(CLASSIFIER)
                self._publisher.note(WORDS, self._supervised.moved_words)
        return scalars | {"time/learn_s": time.perf_counter() - started}

    @torch.no_grad()
    def _policy_inputs(self, batch: TensorBatch) -> list[PolicyInputs]:
        with autocast(self.device, self.config.learner.precision):
            return self.models.policy_inputs(batch)

    def _part(self, rollout: Rollout, mine: Array, batch: Batch, number: int) -> RewardBatch:
        """The rollout of this learner's shard, on its device, as wide as its batch."""

        def tensor(values: Array) -> torch.Tensor:
            return torch.from_numpy(values[:, mine]).to(self.device)

        def by_slot(parts: Sequence[Array]) -> list[torch.Tensor]:
            cut = [part[..., : v.shape[1]] for part, v in zip(parts, batch.valid, strict=True)]
            return [tensor(part).contiguous() for part in cut]

        behaviour = bits = thresholded = None
        if rollout.version < number:  # else the policy itself drew them
            behaviour = [part.contiguous() for part in tensor(rollout.log_prob).unbind(-1)]
            bits = by_slot(rollout.bit_log_prob) if rollout.bit_log_prob else None
        if rollout.thresholded is not None:
            thresholded = tensor(rollout.thresholded[None])[0]
        terms = rollout.terms.each(tensor)
        return RewardBatch(by_slot(rollout.selections), terms, thresholded, behaviour, bits)

    def _classifier_reads(
        self,
        turn: Turn,
        number: int,
        batch: Batch,
        tensors: TensorBatch,
        drawn: list[torch.Tensor] | None,
    ) -> list[torch.Tensor] | None:
        """S x [B, 2, N_s], bits or gates; None: every token.

        Args:
            drawn: the same, of the policy's update or of a rollout.
        """
        if drawn is None and turn.sampled:
            drawn = self._gates(tensors, number)
        elif turn.thresholded:
            drawn = thresholded_selections(self.models, self.config, tensors)
        if turn.random_share:
            bits = bits_per_token(self.models.policy)
            shared = batch, bits, turn.random_share
            drawn = random_selections(self.config.seed, number, *shared, drawn, self.device)
        return drawn

    @torch.no_grad()
    def _gates(self, batch: TensorBatch, number: int) -> list[torch.Tensor]:
        """The first gates of each example where the policy does not learn, S x [B, 2, N_s]."""
        with autocast(self.device, self.config.learner.precision):
            slots = zip(
                self.models.distributions(batch), self._uniforms(batch, number), strict=True
            )
            return [each.rsample(uniforms[:1])[0] for each, uniforms in slots]

    def publish(self, version: int, *, full: bool = True) -> Snapshot:
        """See `Learner`."""
        return self._publisher.publish(version, full=full)

    def evaluate(self, split: str, modes: Sequence[Mode]) -> dict[str, dict[str, float]]:
        """See `Learner`."""
        examples = self._prepared.split(split)
        return evaluate(
            self.models, examples, self.config, modes, device=self.device, task=self._task
        )

    def _gated_reward(self) -> GatedReward:
        """The reward model, for updates through gates.

        Raises:
            ConfigError: it takes no gates, or the classifier whose likelihood it is does not.
        """
        encoder, model = self.config.model.encoder, self._task.model
        if self.config.reward.model.can("classifier") and not (
            encoder.can("gates") and self.models.classifier.takes_gates
        ):
            raise ConfigError(
                "this model cannot weight its tokens by gates, which the policy's gradient needs",
                where="model.encoder",
                remedy="Use an encoder with the capability `gates` on one or two sentences, see"
                " `rss-rl components encoders`, or a policy update that learns from rewards",
            )
        if getattr(model, "gated_scores", None) is None:
            raise ConfigError(
                f"{type(model).__name__} has a `score` of its own, but no `gated_scores`, which the"
                " policy's gradient needs",
                where="reward.model",
                remedy="Write it, or take `gates` from the component's capabilities",
            )
        gated: GatedReward = model
        return gated

    @cached_property
    def _task(self) -> SelectionTask:
        """Built where it is asked for: a reward model may load much."""
        words = self._prepared.vocabulary.words
        return run_task(self.config, self.models, self.examples, words, self.device)

    def showcase(self) -> str:
        """See `Learner`."""
        dev = self._prepared.split("dev")
        return make_showcase(self.models, dev, self.device, self.config.predicts)

    def tensors(self) -> dict[str, Any]:
        """See `Learner`."""
        named = {f"classifier/{k}": v for k, v in self.models.classifier.state_dict().items()}
        named |= {f"policy/{k}": v for k, v in self.models.policy.state_dict().items()}
        named |= {f"learning/{k}": v for k, v in self._supervised.state_dict().items()}
        if self._update is not None:
            state = self._update.state_dict()
            named |= {f"{POLICY_UPDATE}{key}": value for key, value in state.items()}
        return named

    def load_tensors(self, tensors: Mapping[str, Array]) -> None:
        """See `Learner`."""
        self._publisher.note_all()
        load_weights(self.models, tensors, self.device)
        try:
            self._supervised.load_state_dict(select_prefix(tensors, "learning/", self.device))
        except RuntimeError as error:
            raise CheckpointError(
                "the learning copy of the classifier does not fit",
                remedy="Resume with the weight_average the run was started with",
            ) from error
        if self._update is not None:
            self._update.load_state_dict(select_prefix(tensors, POLICY_UPDATE, self.device))


def example_weights(
    examples: Split, class_weight: Literal["balanced"] | None = None
) -> Array | None:
    """How often each training example counts, float32 [n] with mean 1; None: once.

    Raises:
        ConfigError: classes are to be balanced, and the labels are none.
    """
    weights = examples.numbers("weight").astype(np.float64)
    if class_weight is not None:
        if examples.labels.kind != "classes":
            raise ConfigError(
                f"only classes can be balanced, and the label is {examples.labels.described}",
                where=f"learner.class_weight={class_weight}",
                remedy="Leave it out, or name a column of weights when preparing the data",
            )
        labels = examples.numbers("label")
        weights /= np.bincount(labels, weights)[labels]
    weights /= weights.mean()
    return None if np.ptp(weights) == 0 else weights.astype(np.float32)


def _rollout_scalars(
    rollout: Rollout,
    batch: Batch,
    config: RewardConfig,
    price: tuple[float, float] | None,
    weights: Array | None,
) -> dict[str, float]:
    """Means over a rollout of the shares that it keeps, of its rewards and of their terms, those of
    costs summed over the sentences.

    Args:
        price: of the update, see `cost_terms`; None where the rollout has its sparsity cost.
        weights: of the examples in the means of rewards, [B]; None: 1.
    """
    flat = [s.reshape(-1, *s.shape[2:]) for s in rollout.selections]  # S x [K * B, 2, N_s]
    real = batch.repeat(len(rollout.log_prob)).valid
    shares = kept_shares(flat, real)
    scalars = {f"selection/{name}": float(share.mean()) for name, share in shares.items()}
    terms = rollout.terms
    if not terms.scores:
        return scalars
    if price is not None:
        costs, shape = cost_terms(flat, real, config, price), rollout.log_prob.shape
        terms = Rewards(terms.scores, {name: cost.reshape(shape) for name, cost in costs.items()})
    summed = {name: cost.sum(-1) for name, cost in terms.costs.items()}
    by_name = {"total": terms.total, **terms.scores, **summed}  # [K, B]
    times = 1 if weights is None else weights
    rewards = {f"reward/{name}": float((each * times).mean()) for name, each in by_name.items()}
    return scalars | rewards
