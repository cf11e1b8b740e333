"""What RLlib is given of the task: the environment, a distribution of bits, and the network."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from peer_task import Network, Task, make_env, task_of
from ray.rllib.core.columns import Columns
from ray.rllib.core.distribution.torch.torch_distribution import TorchDistribution
from ray.rllib.core.learner.utils import make_target_network
from ray.rllib.core.rl_module.apis import (
    TARGET_NETWORK_ACTION_DIST_INPUTS,
    TargetNetworkAPI,
    ValueFunctionAPI,
)
from ray.rllib.core.rl_module.torch import TorchRLModule


class Episodes(VectorEnv):
    """Episodes of several sentences; every episode ends at the same step.

    As RLlib expects, the call after the last step of an episode is its reset (NEXT_STEP).
    """

    def __init__(self, num_envs: int, sentences: int, reward: str) -> None:
        task = task_of(reward)
        self._env = make_env(task, num_envs, AutoresetMode.SAME_STEP)
        self._sentences, self._step, self._shown = sentences, 0, np.zeros(0)
        self.num_envs = num_envs
        self.metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP, "render_modes": []}
        self.single_observation_space = _tokens_of(task)
        self.single_action_space = self._env.single_action_space
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = self._env.action_space
        self._no = np.zeros(num_envs, np.bool_)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self._shown, self._step = self._env.reset(seed=seed)[0]["tokens_0"], 0
        return self._shown, {}

    def step(self, actions: Any) -> Any:
        if self._step == self._sentences:
            self._step = 0
            return self._shown, np.zeros(self.num_envs), self._no, self._no, {}
        observation, rewards, _, _, _ = self._env.step(actions)
        self._shown, self._step = observation["tokens_0"], self._step + 1
        ended = np.full(self.num_envs, self._step == self._sentences)
        return self._shown, rewards, ended, self._no, {}


def _tokens_of(task: Task) -> gym.Space[Any]:
    return gym.spaces.Box(0, len(task.vectors) - 1, (task.longest,), np.int64)


class Bits(TorchDistribution):
    """Independent bits; those on padding have a logit at which they are never drawn."""

    def _get_torch_distribution(self, logits: torch.Tensor) -> torch.distributions.Distribution:
        bits = torch.distributions.Bernoulli(logits=logits, validate_args=False)
        return torch.distributions.Independent(bits, 1, validate_args=False)

    @staticmethod
    def required_input_dim(space: gym.Space[Any], **kwargs: Any) -> int:
        return int(np.prod(space.shape))


class Module(TorchRLModule, ValueFunctionAPI, TargetNetworkAPI):
    """The network of the task that the configuration of the model names."""

    def setup(self) -> None:
        self.action_dist_cls = Bits
        self.net = Network(task_of(self.model_config["reward"]))

    def _logits(self, net: Network, batch: dict[str, Any]) -> torch.Tensor:
        logits, real = net.logits(_observed(batch))
        return logits.masked_fill(~real, -30.0)

    def _forward(self, batch: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        return {Columns.ACTION_DIST_INPUTS: self._logits(self.net, batch)}

    def compute_values(self, batch: dict[str, Any], embeddings: Any = None) -> torch.Tensor:
        return self.net.value(_observed(batch))

    def make_target_networks(self) -> None:
        self.old = make_target_network(self.net)

    def get_target_network_pairs(self) -> list[Any]:
        return [(self.net, self.old)]

    def forward_target(self, batch: dict[str, Any]) -> dict[str, Any]:
        return {TARGET_NETWORK_ACTION_DIST_INPUTS: self._logits(self.old, batch)}


def _observed(batch: dict[str, Any]) -> dict[str, Any]:
    tokens = batch[Columns.OBS]
    return {"tokens_0": tokens, "valid_0": tokens > 0}
