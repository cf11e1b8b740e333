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
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import ray
import torch
from peer_rllib_parts import Episodes, Module
from peer_task import BATCH, ENVS, TRICK, Tuning
from ray.rllib.algorithms.appo import APPOConfig
from ray.rllib.algorithms.impala import IMPALAConfig
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.core.rl_module.rl_module import RLModuleSpec
from ray.tune.registry import register_env

CONFIGS = {"PPO": PPOConfig, "APPO": APPOConfig, "IMPALA": IMPALAConfig}
BEST = {"PPO": {"runners": 0}, "APPO": {"runners": 1}, "IMPALA": {"runners": 1}}
"""PPO, which waits for its rollouts, was faster where the learner's process samples than with one
process for it (on a busy machine); the others sample elsewhere by nature."""
SETTLING_S = 0.3
"""After which the rollouts that APPO and IMPALA have asked for beyond a turn are there."""


@dataclass(frozen=True)
class Setup:
    """What is to run: see `Tuning`.

    algorithm  of CONFIGS
    sentences  of an episode
    reward     see `task_of`
    runners    processes that sample; 0: the learner's own does
    envs       sentences side by side in each
    """

    algorithm: str
    sentences: int
    reward: str
    runners: int = 1
    envs: int = ENVS
    tuning: Tuning = Tuning()  # noqa: RUF009  frozen
    seed: int = 0

    def build(self) -> Any:
        """The algorithm, with its learner in this process."""
        tuning = self.tuning
        register_env("selection", _make_episodes)
        config = CONFIGS[self.algorithm]()
        given = {"sentences": self.sentences, "reward": self.reward}
        config.environment("selection", env_config=given, disable_env_checking=True)
        config.env_runners(
            num_env_runners=self.runners,
            num_cpus_per_env_runner=0,  # several algorithms are there, of which one works
            num_envs_per_env_runner=self.envs,
            use_env_runner_state_server=False,  # for many samplers: a process and a wait more
            gym_env_vectorize_mode="vector_entry_point",
            rollout_fragment_length=tuning.batch // self.envs // max(1, self.runners),
        )
        config.training(
            gamma=0.0,
            lr=tuning.learning_rate,
            train_batch_size_per_learner=tuning.batch,
            entropy_coeff=tuning.entropy_cost,
        )
        if self.algorithm == "PPO":
            config.training(
                num_epochs=tuning.epochs, minibatch_size=tuning.minibatch, lambda_=1.0,
                use_kl_loss=False,
            )  # fmt: skip
        config.learners(num_learners=0)
        config.rl_module(
            rl_module_spec=RLModuleSpec(module_class=Module, model_config={"reward": self.reward})
        )
        config.reporting(
            min_time_s_per_iteration=1,
            metrics_num_episodes_for_smoothing=max(1, BATCH // self.sentences),
        )
        config.debugging(seed=self.seed, log_level="ERROR")
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

    def __init__(self, setup: Setup) -> None:
        self._setup, self._algorithm, self._steps = setup, setup.build(), 0
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
        found = group.foreach_env_runner(
            lambda r: r.sample(), local_env_runner=not self._setup.runners
        )
        return sum(len(episode) for episodes in found for episode in episodes)

    def rate(self, mode: str, seconds: float) -> float:
        """Sentences a second of `sample` or `train`, over as many as take so long."""
        started, steps = time.perf_counter(), 0
        while not steps or time.perf_counter() - started < seconds:
            steps += getattr(self, mode)()
        rate = steps / (time.perf_counter() - started)
        time.sleep(SETTLING_S)
        return rate


def turns(reward: str, seconds: float) -> dict[str, Callable[[], float]]:
    """For a worker of the benchmarks: sentences a second by mode, algorithm and episode.

    Sampling is the same for all algorithms; that of PPO stands for them: with the others it would
    continue by itself.
    """
    node = ExitStack()
    node.enter_context(ray_alone())
    atexit.register(node.close)
    found: dict[str, Callable[[], float]] = {}
    for sentences in (1, TRICK):
        for algorithm, layout in BEST.items():
            running = Running(Setup(algorithm, sentences, reward, **layout))
            for mode in ("sample", "train") if algorithm == "PPO" else ("train",):
                found[f"{mode} {algorithm} {sentences}"] = partial(running.rate, mode, seconds)
    return found
