"""The tasks on which systems are compared: one environment, one network, two reward models.

Nothing of Ray, RLlib or Stable-Baselines3 is imported here; every system imports this.

Legend: M examples, N tokens of a sentence, V words, E embedding size; a bit is right where the word
wants it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gymnasium.vector import AutoresetMode
from torch import Tensor, nn

from rss_rl.config import ModelConfig
from rss_rl.envs.task import make_task
from rss_rl.envs.vector import TokenSelectionVectorEnv
from rss_rl.models.build import build_classifier
from rss_rl.policies.policy import PolicyInputs, PolicySetup
from rss_rl.policies.rss import RSSOptions, RSSPolicy
from rss_rl.reward_models.likelihood import ClassifierReward
from rss_rl.types import Array, Batch, ExampleSource, LabelSpec

EXAMPLES, SHORTEST, LONGEST = 8192, 8, 32
WORDS, EMBEDDING, HIDDEN, REWARD_HIDDEN = 512, 32, 16, 64
"""The policy is small, so that systems are compared and not matrix products, which all of them do
with the same library: with a large one every ratio tends to 1."""
LABELS = LabelSpec("classes", ("no", "yes"))
BATCH = 2048
"""Sentences of an update of every system, each seen once."""
LEARNING_RATE = 3e-3
ENVS = 128
"""Sentences side by side, where a system has a vector environment."""
TRICK = 16
"""Sentences of an episode that spare RLlib most of its cost of one."""
PYTHON = Path(__file__).resolve().parents[2] / ".venv-peers" / "bin" / "python"
"""Interpreter of the environment that `make peers` builds."""


class Sentences:
    """An `ExampleSource` of random words, SHORTEST to LONGEST a sentence."""

    sentences = 1
    labels = LABELS

    def __init__(self, size: int = EXAMPLES, seed: int = 0) -> None:
        draw = np.random.default_rng(seed)
        self._lengths = draw.integers(SHORTEST, LONGEST + 1, size)
        self._valid = np.arange(LONGEST) < self._lengths[:, None]  # [size, LONGEST]
        self._tokens = np.where(self._valid, draw.integers(1, WORDS, self._valid.shape), 0)
        self._classes = draw.integers(0, 2, size)

    def __len__(self) -> int:
        return len(self._lengths)

    def lengths(self) -> Array:
        return self._lengths[:, None].astype(np.int64)

    def batch(self, rows: Sequence[int] | Array) -> Batch:
        index = np.asarray(rows, dtype=np.int64)
        width = int(self._lengths[index].max(initial=1))
        tokens, valid = self._tokens[index, :width], self._valid[index, :width]
        return Batch(index, (tokens,), (valid,), self._classes[index])


def word_vectors() -> Array:
    """float32 [V, E]; row 0 is padding."""
    vectors = np.random.default_rng(1).normal(size=(WORDS, EMBEDDING)).astype(np.float32)
    vectors[0] = 0
    return vectors


class RightBits(nn.Module):
    """The trivial reward as a classifier: the share of the bits of real tokens that are right."""

    wanted: Tensor

    def __init__(self) -> None:
        super().__init__()
        wanted = np.random.default_rng(2).random((WORDS, 2)) < 0.5
        self.register_buffer("wanted", torch.from_numpy(wanted))

    def forward(
        self, tokens: Sequence[Tensor], valid: Sequence[Tensor], selections: Sequence[Tensor]
    ) -> Tensor:
        """[M, 1], in [0, 1]."""
        wanted = self.wanted[tokens[0]].transpose(1, 2)  # [M, 2, N]
        right = ((selections[0] == wanted) & valid[0][:, None]).sum((1, 2))
        return (right / (2 * valid[0].sum(1)).clamp_min(1))[:, None]

    def losses(self, logits: Tensor, labels: Tensor) -> Tensor:
        """[M]: minus the reward."""
        return -logits[:, 0]


@dataclass(frozen=True)
class Task:
    """What is to be learnt.

    examples    sentences
    classifier  what pays
    vectors     float32 [V, E] that the policy reads; row 0 is padding
    """

    examples: ExampleSource
    classifier: nn.Module
    vectors: Array

    @property
    def longest(self) -> int:
        """Tokens of the longest sentence."""
        return int(self.examples.lengths().max())


def task_of(reward: str) -> Task:
    """The task of a name.

    Args:
        reward: `bits`, the share of right ones; `classifier`, ReSAN in its faithful form with
            random weights.
    """
    if reward == "bits":
        return Task(Sentences(), RightBits(), word_vectors())
    config = ModelConfig(hidden=REWARD_HIDDEN, dropout=0.0)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        model = build_classifier(config, LABELS, 1, word_vectors(), WORDS)
    return Task(Sentences(), model.eval(), word_vectors())


def make_env(task: Task, envs: int) -> TokenSelectionVectorEnv:
    """The environment, natively batched."""
    found = make_task(
        task.examples,
        reward_model=ClassifierReward(task.classifier),
        max_len=task.longest,
        vocabulary_size=len(task.vectors),
    )
    return TokenSelectionVectorEnv(envs, found, autoreset_mode=AutoresetMode.SAME_STEP)


class Network(nn.Module):
    """RSS over fixed word vectors, and a value of the sentence for those that want one."""

    def __init__(self, task: Task) -> None:
        super().__init__()
        table = torch.from_numpy(task.vectors)
        self.embedding = nn.Embedding.from_pretrained(table, freeze=True, padding_idx=0)
        size = table.shape[1]
        options = RSSOptions(hidden=HIDDEN, initial_probability=0.5)
        self.policy = RSSPolicy(PolicySetup(size, "relu"), options)
        self.value_head = nn.Linear(size, 1)

    def logits(self, observation: dict[str, Any]) -> tuple[Tensor, Tensor]:
        """Logits [B, 2 N] of the action's bits, and True where they are of real tokens."""
        valid, tokens = observation["valid_0"].bool(), observation["tokens_0"].long()
        inputs = PolicyInputs(self.embedding(tokens), valid, tokens, torch.zeros_like(valid))
        logits = self.policy(inputs).logits
        return logits.flatten(1), valid[:, None].expand_as(logits).flatten(1)

    def value(self, observation: dict[str, Any]) -> Tensor:
        """[B], from the mean word vector."""
        valid = observation["valid_0"].bool()
        vectors = self.embedding(observation["tokens_0"].long())
        pool = vectors.sum(1) / valid.sum(1, keepdim=True).clamp_min(1)  # padding has zeros
        return self.value_head(pool)[:, 0]
