"""Our own ways to sample and learn on the task, and a plain torch loop beside them."""

from __future__ import annotations

import numpy as np
import torch
from gymnasium.vector import AutoresetMode
from peer_task import BATCH, Network, Task, Tuning, make_env, task_of
from torch import Tensor, nn

from rss_rl.config import RunConfig
from rss_rl.learners.updates import PolicyUpdate, RewardBatch, UpdateSetup, build_update, read
from rss_rl.models.embedding import WordEmbedding
from rss_rl.models.inputs import TensorBatch, tensor_batch
from rss_rl.policies.inputs import policy_inputs
from rss_rl.policies.rss import RSSPolicy
from rss_rl.reading.device import keep_freed_memory
from rss_rl.reading.models import Models
from rss_rl.rollouts.rollout import Job, Rollout, join_rollouts
from rss_rl.rollouts.sampler import Sampler
from rss_rl.rollouts.snapshot import Publisher
from rss_rl.types import ROLES

_CPU = torch.device("cpu")

SHARD = 256
"""Selections of a job: what the policy computes of so many stays in the processor's cache."""


def _learner(policy: RSSPolicy, embedding: WordEmbedding, config: RunConfig) -> PolicyUpdate:
    def inputs(batch: TensorBatch) -> list[Tensor]:
        return policy_inputs(policy, embedding, batch.tokens, batch.valid)

    setup = UpdateSetup(policy, inputs, config.learner, config.reward)
    return build_update(config.estimator, setup)


def _config(selections: int, tuning: Tuning) -> RunConfig:
    baseline = "leave-one-out" if selections > 1 else "moving-average"
    return RunConfig.model_validate(
        {
            "data": "none",
            "phases": [{"name": "policy", "policy": True, "steps": 1}],
            "reward": {"sparsity_cost": 0.0},
            "learner": {
                "estimator": {
                    "name": "reinforce",
                    "options": {"baseline": baseline},
                },
                "policy": {"learning_rate": tuning.learning_rate},
                "entropy_cost": tuning.entropy_cost,
            },
            "sampler": {"selections": selections},
        }
    )


def _policy(task: Task, seed: int) -> RSSPolicy:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return Network(task).policy


def _embedding(task: Task) -> WordEmbedding:
    return WordEmbedding(task.vectors, len(task.vectors))


class Pipeline:
    """What `rss-rl train` does: jobs to a `Sampler`, Arrow rollouts to the learner.

    Args:
        selections: K of each sentence; every one of them counts as a step of the environment.
    """

    def __init__(
        self, reward: str, selections: int = 1, seed: int = 0, tuning: Tuning | None = None
    ) -> None:
        keep_freed_memory()
        task, tuning = task_of(reward), tuning or Tuning()
        self._config, self._selections = _config(selections, tuning), selections
        self._examples, self._update, self._batch = task.examples, 0, tuning.batch
        classifier = task.classifier
        if not hasattr(classifier, "embedding"):
            classifier.embedding = _embedding(task)
        self._models = Models(classifier, _policy(task, seed))  # type: ignore[arg-type]
        self._sampler = Sampler(self._config, self._models, self._examples)
        self._publish()
        self._learner = _learner(self._models.policy, classifier.embedding, self._config)  # type: ignore[arg-type]
        self._order = np.random.default_rng(seed)
        self.rewards: list[float] = []

    def _publish(self) -> None:
        self._sampler.load(Publisher(self._models).publish(self._update))

    def _rollout(self) -> Rollout:
        rows = self._order.integers(len(self._examples), size=self._batch // self._selections)
        jobs = [
            Job(self._update, n, part, self._selections, scored=True, thresholded=False)
            for n, part in enumerate(np.array_split(rows, max(1, self._batch // SHARD)))
        ]
        rollout = join_rollouts([self._sampler.sample(job) for job in jobs])
        self.rewards.append(float(rollout.rewards.mean()))
        self._update += 1
        return rollout

    def sample(self) -> int:
        """Sentences of a rollout."""
        self._rollout()
        return self._batch

    def train(self) -> int:
        """Sentences of a rollout and an update."""
        rollout = self._rollout()
        batch = tensor_batch(self._examples.batch(rollout.rows), _CPU)
        selections = [torch.from_numpy(bits) for bits in rollout.selections]
        paid = RewardBatch(selections, torch.from_numpy(rollout.rewards), None)
        read([self._learner.gradients(batch, paid, number=self._update, charged=None)])
        self._learner.apply()
        self._publish()
        return self._batch


class VectorLoop:
    """The Gymnasium vector environment, the RSS policy and the policy-gradient learner."""

    def __init__(self, envs: int, reward: str, seed: int = 0) -> None:
        task = task_of(reward)
        self._env = make_env(task, envs, AutoresetMode.SAME_STEP)
        self._policy, self._envs, self._updates = _policy(task, seed), envs, 0
        self._embedding = _embedding(task)
        self._learner = _learner(self._policy, self._embedding, _config(1, Tuning()))
        torch.manual_seed(seed)
        self._observation, _ = self._env.reset(seed=seed)
        self.rewards: list[float] = []

    def _step(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        tokens = torch.from_numpy(self._observation["tokens_0"])
        valid = torch.from_numpy(self._observation["valid_0"]).bool()
        with torch.inference_mode():
            uniforms = torch.rand(1, len(tokens), ROLES, tokens.shape[1])
            drawn = self._policy(self._embedding(tokens), valid).sample(uniforms).selection
            action = drawn[0].flatten(1).numpy()
        self._observation, rewards, _, _, _ = self._env.step(action)
        self.rewards.append(float(rewards.mean()))
        return tokens, valid, drawn.clone(), torch.from_numpy(rewards).float()

    def sample(self) -> int:
        """Sentences of a rollout."""
        for _ in range(BATCH // self._envs):
            self._step()
        return BATCH

    def train(self) -> int:
        """Sentences of a rollout and an update."""
        steps = [self._step() for _ in range(BATCH // self._envs)]
        tokens, valid = (torch.cat([step[n] for step in steps]) for n in (0, 1))
        selection = torch.cat([step[2] for step in steps], 1)
        rewards = torch.cat([step[3] for step in steps])[None, :, None]
        batch = TensorBatch([tokens], [valid], torch.zeros(len(tokens)))
        paid = RewardBatch([selection], rewards)
        read([self._learner.gradients(batch, paid, number=self._updates, charged=None)])
        self._learner.apply()
        self._updates += 1
        return BATCH


class PlainLoop:
    """REINFORCE as one would write it in an afternoon, on the same environment and network."""

    def __init__(self, envs: int, reward: str, seed: int = 0) -> None:
        torch.manual_seed(seed)
        task = task_of(reward)
        self._env, self._net = make_env(task, envs, AutoresetMode.SAME_STEP), Network(task)
        self._policy: nn.Module = self._net.policy
        self._optimizer = torch.optim.Adam(self._policy.parameters(), lr=Tuning.learning_rate)
        self._envs = envs
        self._observation = self._env.reset(seed=seed)[0]
        self._average: float | None = None  # of the rewards
        self.rewards: list[float] = []

    def _step(self) -> tuple[dict[str, Tensor], Tensor, Tensor]:
        shown = {name: torch.from_numpy(values) for name, values in self._observation.items()}
        with torch.no_grad():
            chance = torch.sigmoid(self._net.logits(shown)[0])
            action = torch.rand_like(chance) < chance
        self._observation, rewards, _, _, _ = self._env.step(action.numpy())
        self.rewards.append(float(rewards.mean()))
        return shown, action, torch.from_numpy(rewards).float()

    def sample(self) -> int:
        """Sentences of a rollout."""
        for _ in range(BATCH // self._envs):
            self._step()
        return BATCH

    def train(self) -> int:
        """Sentences of a rollout and an update."""
        steps = [self._step() for _ in range(BATCH // self._envs)]
        shown = {name: torch.cat([step[0][name] for step in steps]) for name in steps[0][0]}
        bits, rewards = (torch.cat([step[n] for step in steps]) for n in (1, 2))
        logits, real = self._net.logits(shown)
        by_bit = torch.nn.functional.logsigmoid(torch.where(bits, logits, -logits)) * real
        mean = float(rewards.mean())
        self._average = mean if self._average is None else 0.95 * self._average + 0.05 * mean
        loss = -((rewards - self._average) * by_bit.sum(1)).mean()
        self._optimizer.zero_grad()
        loss.backward()
        self._optimizer.step()
        return BATCH
