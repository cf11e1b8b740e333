"""RLlib's PPO, APPO and IMPALA on the task, at their best; for the interpreter of .venv-peers.

RLlib has no distribution of MultiBinary actions, so the module brings one. Observations are one
array, infos are left out and the environment is natively batched: RLlib is slower otherwise.
Episodes of 16 sentences are the trick that spares it most of its cost of an episode; as gamma is 0
the problem stays the same.
"""

from __future__ import annotations

import atexit
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import ray
import torch
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from peer_task import BATCH, ENVS, LEARNING_RATE, TRICK, Network, Task, make_env, task_of
from ray.rllib.algorithms.appo import APPOConfig
from ray.rllib.algorithms.impala import IMPALAConfig
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.core.columns import Columns
from ray.rllib.core.distribution.torch.torch_distribution import TorchDistribution
from ray.rllib.core.learner.utils import make_target_network
from ray.rllib.core.rl_module.apis import (
    TARGET_NETWORK_ACTION_DIST_INPUTS,
    TargetNetworkAPI,
    ValueFunctionAPI,
)
from ray.rllib.core.rl_module.rl_module import RLModuleSpec
from ray.rllib.core.rl_module.torch import TorchRLModule
from ray.tune.registry import register_env

CONFIGS = {"PPO": (PPOConfig, 0), "APPO": (APPOConfig, 1), "IMPALA": (IMPALAConfig, 1)}
"""With the processes that sample; 0: the learner's own does. PPO, which waits for its rollouts, was
faster so (on a busy machine); the others sample elsewhere by nature."""
STRETCH_S = 1.0
SETTLING_S = 0.3
"""After which the rollouts that APPO and IMPALA have asked for beyond a turn are there."""


class Episodes(VectorEnv):
    """Episodes of several sentences; every episode ends at the same step.

    As RLlib expects, the call after the last step of an episode is its reset (NEXT_STEP).
    """

    def __init__(self, num_envs: int, sentences: int, reward: str) -> None:
        task = task_of(reward)
        self._env = make_env(task, num_envs)
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


def build(algorithm: str, sentences: int, reward: str) -> Any:
    """The algorithm, with its learner in this process; `sentences` of an episode."""
    register_env("selection", _make_episodes)
    kind, runners = CONFIGS[algorithm]
    config = kind()
    given = {"sentences": sentences, "reward": reward}
    config.environment("selection", env_config=given, disable_env_checking=True)
    config.env_runners(
        num_env_runners=runners,
        num_cpus_per_env_runner=0,  # several algorithms are there, of which one works
        num_envs_per_env_runner=ENVS,
        use_env_runner_state_server=False,  # for many samplers: a process and a wait more
        gym_env_vectorize_mode="vector_entry_point",
        rollout_fragment_length=BATCH // ENVS,
    )
    config.training(
        gamma=0.0, lr=LEARNING_RATE, train_batch_size_per_learner=BATCH, entropy_coeff=0.0
    )
    if algorithm == "PPO":
        config.training(num_epochs=1, minibatch_size=BATCH, lambda_=1.0, use_kl_loss=False)
    config.learners(num_learners=0)
    config.rl_module(
        rl_module_spec=RLModuleSpec(module_class=Module, model_config={"reward": reward})
    )
    config.reporting(
        min_time_s_per_iteration=1, metrics_num_episodes_for_smoothing=max(1, BATCH // sentences)
    )
    config.debugging(seed=0, log_level="ERROR")
    return config.build_algo()


def _make_episodes(config: Any) -> Episodes:
    return Episodes(config.get("num_envs", 1), config["sentences"], config["reward"])


@contextmanager
def ray_alone() -> Iterator[None]:
    """A Ray of its own, in a folder that goes with it."""
    torch.set_num_threads(1)
    here = Path(__file__).resolve().parent
    paths = os.pathsep.join([str(here), str(here.parents[1])])
    # On a busy machine the agents of a node take longer than the half minute they are given.
    os.environ.setdefault("RAY_agent_register_timeout_ms", "300000")
    # Ray's processes give way to others, so that a sampler would hardly run beside other work.
    os.environ.setdefault("RAY_worker_niceness", "0")
    with tempfile.TemporaryDirectory(prefix="peer-") as folder:  # short: sockets lie in it
        ray.init(
            "local",
            num_cpus=2,  # as many idle processes are started at once
            include_dashboard=False,
            log_to_driver=False,
            configure_logging=False,
            _temp_dir=folder,
            object_store_memory=500_000_000,
            runtime_env={"env_vars": {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}},
        )
        try:
            yield
        finally:
            ray.shutdown()


class Running:
    """An algorithm that has made its first rollout, which is the end of its start."""

    def __init__(self, algorithm: str, sentences: int, reward: str) -> None:
        self._runners, self._steps = CONFIGS[algorithm][1], 0
        self._algorithm = build(algorithm, sentences, reward)
        while not self._steps:
            self.train()

    def train(self) -> int:
        """Sentences of an iteration, about a second of training."""
        before = self._steps
        found = self._algorithm.train().get("env_runners", {})  # empty before the first rollout
        self._steps = int(found.get("num_env_steps_sampled_lifetime", before))
        return self._steps - before

    def sample(self) -> int:
        """Sentences of one request to each sampler; the episodes come to this process."""
        group = self._algorithm.env_runner_group
        found = group.foreach_env_runner(lambda r: r.sample(), local_env_runner=not self._runners)
        return sum(len(episode) for episodes in found for episode in episodes)

    def rate(self, mode: str) -> float:
        """Sentences a second of `sample` or `train`, over as many as take a stretch."""
        started, steps = time.perf_counter(), 0
        while not steps or time.perf_counter() - started < STRETCH_S:
            steps += getattr(self, mode)()
        rate = steps / (time.perf_counter() - started)
        time.sleep(SETTLING_S)
        return rate


def turns(reward: str) -> dict[str, Callable[[], float]]:
    """For a worker of the benchmarks: sentences a second by mode, algorithm and episode.

    Sampling is the same for all algorithms; that of PPO stands for them: with the others it would
    continue by itself.
    """
    node = ExitStack()
    node.enter_context(ray_alone())
    atexit.register(node.close)
    found: dict[str, Callable[[], float]] = {}
    for sentences in (1, TRICK):
        for algorithm in CONFIGS:
            running = Running(algorithm, sentences, reward)
            for mode in ("sample", "train") if algorithm == "PPO" else ("train",):
                found[f"{mode} {algorithm} {sentences}"] = partial(running.rate, mode)
    return found
