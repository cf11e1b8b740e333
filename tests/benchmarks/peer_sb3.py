"""Stable-Baselines3's PPO on the task: its vector interface over ours, its policy over the network.

The native vector environment is given to it directly: it is several times as fast there as with a
`DummyVecEnv` of single ones.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from peer_task import BATCH, ENVS, LEARNING_RATE, Network, make_env, task_of
from stable_baselines3 import PPO
from stable_baselines3.common.policies import ActorCriticPolicy
from stable_baselines3.common.vec_env import VecEnv
from torch import Tensor

from rss_rl.envs.vector import TokenSelectionVectorEnv
from rss_rl.types import Array


class NativeVecEnv(VecEnv):
    """Our vector environment, in SAME_STEP mode, as Stable-Baselines3 wants one."""

    def __init__(self, env: TokenSelectionVectorEnv) -> None:
        self._env = env
        self._actions: Array | None = None
        super().__init__(env.num_envs, env.single_observation_space, env.single_action_space)

    def reset(self) -> Any:
        seed = self._seeds[0]
        self._reset_seeds()
        return self._env.reset(seed=seed)[0]

    def step_async(self, actions: Array) -> None:
        self._actions = actions

    def step_wait(self) -> Any:
        observation, rewards, ended, _, _ = self._env.step(self._actions)
        return observation, rewards.astype(np.float32), ended, [{} for _ in ended]

    def close(self) -> None:
        self._env.close()

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        return [getattr(self._env, attr_name)] * len(list(self._get_indices(indices)))

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        raise NotImplementedError(attr_name)

    def env_method(self, method_name: str, *args: Any, indices: Any = None, **kwargs: Any) -> Any:
        raise NotImplementedError(method_name)

    def env_is_wrapped(self, wrapper_class: type, indices: Any = None) -> list[bool]:
        return [False] * len(list(self._get_indices(indices)))


class NetworkPolicy(ActorCriticPolicy):
    """The network of the task in place of an extractor and two perceptrons.

    Args:
        network: makes it.
    """

    def __init__(self, *args: Any, network: Callable[[], Network], **kwargs: Any) -> None:
        self._network = network
        super().__init__(*args, **kwargs)

    def _build(self, lr_schedule: Any) -> None:
        self.net = self._network()
        trained = [p for p in self.net.parameters() if p.requires_grad]
        self.optimizer = self.optimizer_class(trained, lr=lr_schedule(1), **self.optimizer_kwargs)

    def forward(self, obs: Any, deterministic: bool = False) -> tuple[Tensor, Tensor, Tensor]:
        logits, real = self.net.logits(obs)
        chance = torch.sigmoid(logits)
        actions = (chance > 0.5) if deterministic else torch.rand_like(chance) < chance
        return actions.float(), self.net.value(obs), _log_prob(logits, actions, real)

    def evaluate_actions(self, obs: Any, actions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        logits, real = self.net.logits(obs)
        entropy = torch.distributions.Bernoulli(logits=logits).entropy() * real
        return self.net.value(obs), _log_prob(logits, actions > 0.5, real), entropy.sum(1)

    def predict_values(self, obs: Any) -> Tensor:
        return self.net.value(obs)

    def _predict(self, observation: Any, deterministic: bool = False) -> Tensor:
        return self(observation, deterministic)[0]


def _log_prob(logits: Tensor, bits: Tensor, real: Tensor) -> Tensor:
    by_bit = torch.nn.functional.logsigmoid(torch.where(bits, logits, -logits))
    return (by_bit * real).sum(1)


class SB3:
    """PPO, ready to be run in stretches."""

    def __init__(self, reward: str) -> None:
        task = task_of(reward)
        self.env = NativeVecEnv(make_env(task, ENVS))
        self.ppo = PPO(
            NetworkPolicy,
            self.env,
            policy_kwargs={"network": lambda: Network(task)},
            learning_rate=LEARNING_RATE,
            n_steps=BATCH // ENVS,
            batch_size=BATCH,
            n_epochs=1,
            gamma=0.0,
            gae_lambda=1.0,
            ent_coef=0.0,
            seed=0,
            device="cpu",
        )
        _, self._callback = self.ppo._setup_learn(10**9)

    def sample(self) -> int:
        """Sentences of a rollout."""
        ppo = self.ppo
        ppo.collect_rollouts(self.env, self._callback, ppo.rollout_buffer, ppo.n_steps)
        return BATCH

    def train(self) -> int:
        """Sentences of a rollout and an update."""
        count = self.sample()
        self.ppo.train()
        return count
