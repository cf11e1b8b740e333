"""The sampler: policy and reward model in one process, which turn jobs into rollouts; their task.

Legend: K selections an example, B examples of a shard, S sentences, N_s tokens of slot s.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from rss_rl.config import RunConfig
from rss_rl.envs.task import SelectionTask, build_reward_model, check_finite
from rss_rl.models.inputs import tensor_batch
from rss_rl.policies.distributions import SelectionDistribution, selection_uniforms
from rss_rl.policies.policy import bits_per_token
from rss_rl.reading.device import check_threads, inference
from rss_rl.reading.models import Models
from rss_rl.reward_models.reward_model import Rewards, RewardSetup
from rss_rl.rollouts.rollout import Job, Rollout
from rss_rl.rollouts.snapshot import Parts, Snapshot
from rss_rl.types import Array, Batch, ExampleSource

_CPU = torch.device("cpu")


class Sampler:
    """Draws and scores selections of training examples.

    Args:
        models: this sampler's own copies; snapshots are loaded into them.
        examples: the training split.
        words: of the token ids, for reward models that need them; None if unknown.
        device: to compute on; the models are moved there.

    `version` is that of the loaded snapshot; None before the first.
    """

    def __init__(
        self,
        config: RunConfig,
        models: Models,
        examples: ExampleSource,
        words: Sequence[str] | None = None,
        device: torch.device = _CPU,
    ) -> None:
        check_threads(config.sampler.threads, "sampler.threads")
        self._config = config
        self._models = models
        self._device = device
        models.classifier.to(device)
        models.policy.to(device)
        self._parts = Parts(models)
        self.version: int | None = None
        self._task = run_task(config, models, examples, words, device)

    def load(self, snapshot: Snapshot) -> None:
        """Load a snapshot."""
        self._parts.load(snapshot)
        self.version = snapshot.version

    def sample(self, job: Job) -> Rollout:
        """The rollout of a job under the loaded snapshot.

        Raises:
            ValueError: before the first snapshot.
            NonFiniteError: the policy or the reward model returned NaN or an infinity.
        """
        if self.version is None:
            raise ValueError("a sampler cannot sample before its first snapshot")
        sampler = self._config.sampler
        with inference(self._models, sampler.threads, self._device, sampler.precision):
            return self._rollout(job, self.version)

    def _rollout(self, job: Job, version: int) -> Rollout:
        batch = self._task.observe(job.rows)
        chances = self._models.distributions(tensor_batch(batch, self._device))
        selections, log_probs = self._draw(job, batch, chances)
        summed = [bits.sum((-1, -2)) for bits in log_probs]  # S x [K, B]
        for log_prob in summed:  # NaN weights still draw selections: only log-probs reveal them
            check_finite("the policy's log-prob", log_prob, job.rows)
        terms, thresholded = Rewards({}, {}), None
        if job.scored:
            drawn = [s.reshape(-1, *s.shape[2:]) for s in selections]
            if job.thresholded:
                # Appended, so that one call of the reward model scores both.
                modes = [chance.mode.cpu().numpy() for chance in chances]
                drawn = [np.concatenate(pair) for pair in zip(drawn, modes, strict=True)]
            scored, count = self._task.step(batch, drawn), job.selections * len(batch)
            if job.thresholded:
                thresholded = scored.by_sentence[count:]
            by_selection = job.selections, len(batch)
            terms = scored.each(lambda term: term[:count].reshape(*by_selection, *term.shape[1:]))
        return Rollout(
            job.rows,
            tuple(selections),
            np.stack(summed, -1),
            terms,
            thresholded,
            version,
            tuple(log_probs) if job.bitwise else (),
        )

    def _draw(
        self, job: Job, batch: Batch, chances: Sequence[SelectionDistribution]
    ) -> tuple[list[Array], list[Array]]:
        widths = [valid.shape[1] for valid in batch.valid]
        uniforms = selection_uniforms(
            self._config.seed, job.update, batch.rows, widths, job.selections, self._device,
            antithetic=job.antithetic,
        )  # fmt: skip
        selections, log_probs = [], []
        for chance, drawn in zip(chances, uniforms, strict=True):
            sampled = chance.sample(drawn)
            selections.append(sampled.selection.contiguous().cpu().numpy())
            log_probs.append(sampled.log_prob.float().cpu().numpy())
        return selections, log_probs


def run_task(
    config: RunConfig,
    models: Models,
    examples: ExampleSource,
    words: Sequence[str] | None = None,
    device: torch.device | str = "cpu",
) -> SelectionTask:
    """The task of a run, which samplers, evaluation and environments share.

    Args:
        models: their classifier is shared with the reward model, if that needs one.
        words: of the token ids; None if unknown.
        device: of the classifier's weights.

    Raises:
        ConfigError: see the component in `reward.model`.
    """
    setup = RewardSetup(examples.labels, examples.sentences, models.classifier, str(device), words)
    return SelectionTask(
        examples,
        build_reward_model(config.reward, setup),
        config.reward,
        bits=bits_per_token(models.policy),
    )
