"""Our own ways to sample and learn on the task, and a plain torch loop beside them."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from peer_task import BATCH, ENVS, LEARNING_RATE, Network, make_env, task_of
from torch import Tensor, nn

from rss_rl.config import RunConfig
from rss_rl.learners.updates import RewardBatch, UpdateSetup, build_update, read
from rss_rl.models.embedding import WordEmbedding
from rss_rl.models.inputs import tensor_batch
from rss_rl.reading.device import keep_freed_memory
from rss_rl.reading.models import Models
from rss_rl.rollouts.rollout import Job, Rollout, join_rollouts
from rss_rl.rollouts.sampler import Sampler
from rss_rl.rollouts.snapshot import Publisher

_CPU = torch.device("cpu")

SHARD = 256
"""Selections of a job: what the policy computes of so many stays in the processor's cache."""


CONFIG = RunConfig.model_validate(
    {
        "data": "none",
        "phases": [{"name": "policy", "policy": True, "steps": 1}],
        "reward": {"sparsity_cost": 0.0},
        "learner": {
            "policy_update": {"name": "reinforce", "options": {"baseline": "moving-average"}},
            "policy": {"learning_rate": LEARNING_RATE},
            "entropy_cost": 0.0,
        },
        "sampler": {"selections": 1},
    }
)


class Pipeline:
    """What `rss-rl train` does: jobs to a `Sampler`, Arrow rollouts to the learner."""

    def __init__(self, reward: str) -> None:
        keep_freed_memory()
        task = task_of(reward)
        self._examples, self._update = task.examples, 0
        classifier: Any = task.classifier
        if not hasattr(classifier, "embedding"):
            classifier.embedding = WordEmbedding(task.vectors, len(task.vectors))
        torch.manual_seed(0)
        policy = Network(task).policy
        self._models = Models(classifier, policy)
        self._sampler = Sampler(CONFIG, self._models, self._examples)
        self._publish()
        setup = UpdateSetup(policy, CONFIG.learner, CONFIG.reward)
        self._learner = build_update(CONFIG.policy_update, setup)
        self._order = np.random.default_rng(0)
        self.rewards: list[float] = []

    def _publish(self) -> None:
        self._sampler.load(Publisher(self._models).publish(self._update))

    def _rollout(self) -> Rollout:
        rows = self._order.integers(len(self._examples), size=BATCH)
        jobs = [
            Job(self._update, n, part, 1, scored=True, thresholded=False)
            for n, part in enumerate(np.array_split(rows, BATCH // SHARD))
        ]
        rollout = join_rollouts([self._sampler.sample(job) for job in jobs])
        self.rewards.append(float(rollout.rewards.mean()))
        self._update += 1
        return rollout

    def sample(self) -> int:
        """Sentences of a rollout."""
        self._rollout()
        return BATCH

    def train(self) -> int:
        """Sentences of a rollout and an update."""
        rollout = self._rollout()
        batch = tensor_batch(self._examples.batch(rollout.rows), _CPU)
        selections = [torch.from_numpy(bits) for bits in rollout.selections]
        paid = RewardBatch(selections, torch.from_numpy(rollout.rewards), None)
        inputs = self._models.policy_inputs(batch)
        read([self._learner.gradients(batch, inputs, paid, number=self._update, price=None)])
        self._learner.apply()
        self._publish()
        return BATCH


class PlainLoop:
    """REINFORCE as one would write it in an afternoon, on the same environment and network."""

    def __init__(self, reward: str) -> None:
        torch.manual_seed(0)
        task = task_of(reward)
        self._env, self._net = make_env(task, ENVS), Network(task)
        self._policy: nn.Module = self._net.policy
        self._optimizer = torch.optim.Adam(self._policy.parameters(), lr=LEARNING_RATE)
        self._observation = self._env.reset(seed=0)[0]
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
        for _ in range(BATCH // ENVS):
            self._step()
        return BATCH

    def train(self) -> int:
        """Sentences of a rollout and an update."""
        steps = [self._step() for _ in range(BATCH // ENVS)]
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
