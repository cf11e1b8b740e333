"""Another library's PPO learns on the environment: first as anyone would use it, then batched."""

from __future__ import annotations

import runpy
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from stable_baselines3 import PPO
from stable_baselines3.common.env_checker import check_env
from stable_baselines3.common.env_util import make_vec_env

from rss_rl.config import RunConfig
from rss_rl.envs import ENV_ID
from rss_rl.training.run import train
from rss_rl.types import Array, Batch, ExampleSource

EXAMPLE = Path(__file__).parents[2] / "examples" / "ppo_agent.py"


class HeadsOnly:
    """Log-likelihood: minus the share of bits that are no head or a dependent; -0.5 at random."""

    def score(self, batch: Batch, selections: Sequence[Array]) -> Array:
        (selection,), (valid,) = selections, batch.valid
        heads, dependents = ((selection[:, role] & valid).sum(1) for role in (0, 1))
        sizes = valid.sum(1)
        return ((heads - dependents - sizes) / (2 * sizes)).astype(np.float32)


def _make(examples: ExampleSource, **settings: Any) -> gymnasium.Env[Any, Any]:
    return gymnasium.make(
        ENV_ID,
        examples=examples,
        reward_model=HeadsOnly(),
        sparsity_cost=0.0,
        max_len=32,
        vocabulary_size=50,
        **settings,
    )


def test_the_example_trains_on_one_split_and_scores_on_another(
    tiny_config: RunConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    alone = tiny_config.evaluation.model_copy(update={"all_tokens": False})
    short = {"phases": tiny_config.phases[:1], "evaluation": alone}
    for _ in train(tiny_config.model_copy(update=short), tmp_path / "run"):
        pass
    monkeypatch.setattr("sys.argv", ["ppo_agent.py", str(tmp_path / "run"), "--steps", "1024"])
    runpy.run_path(str(EXAMPLE), run_name="__main__")
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[-7] for line in lines] == ["train", "test"] * 3
    assert "kept  1.000" in lines[-1]


def test_its_checker_has_no_complaint(texts: ExampleSource) -> None:
    check_env(_make(texts))  # a warning would be an error here


def test_its_ppo_learns_as_anyone_would_use_it(texts: ExampleSource) -> None:
    seed = 0
    envs = make_vec_env(_make, n_envs=8, seed=seed, env_kwargs={"examples": texts})
    ppo = PPO(
        "MultiInputPolicy", envs, n_steps=32, batch_size=256, n_epochs=4, learning_rate=3e-3,
        gamma=0.0, seed=seed, device="cpu",
    )  # fmt: skip
    rewards = []
    for _ in range(2):
        observation, total = envs.reset(), 0.0
        for _ in range(16):
            action, _ = ppo.predict(observation, deterministic=False)
            observation, paid, _, _ = envs.step(action)
            total += float(paid.mean()) / 16
        rewards.append(total)
        if len(rewards) == 1:
            ppo.learn(4096)
    assert rewards[0] == pytest.approx(-0.5, abs=0.05)
    assert rewards[1] > -0.3
