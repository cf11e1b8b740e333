"""PPO of Stable-Baselines3 on the environment of a run: trained on one split, scored on another.

    rss-rl demo
    python examples/ppo_agent.py runs/demo

It needs `pip install stable-baselines3`. The agent sees the ids of words alone, and of the
classifier only its rewards.
"""

from __future__ import annotations

import argparse
from typing import Any

import gymnasium
import numpy as np
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from torch import Tensor, nn

from rss_rl.envs import ENV_ID


class Words(BaseFeaturesExtractor):
    """A learnt vector for the word at each place, zero on padding; [B, S * max_len * size]."""

    def __init__(self, space: gymnasium.spaces.Dict, size: int = 8) -> None:
        self._slots = sum(name.startswith("tokens_") for name in space)
        width = space["tokens_0"].shape[0]
        super().__init__(space, features_dim=self._slots * width * size)
        self.vectors = nn.Embedding(int(space["tokens_0"].high.max()) + 1, size)

    def forward(self, observed: dict[str, Tensor]) -> Tensor:
        """Of a batch of observations."""
        seen = [
            self.vectors(observed[f"tokens_{s}"].long()) * observed[f"valid_{s}"][..., None]
            for s in range(self._slots)
        ]
        return torch.cat(seen, 1).flatten(1)


def score(run: str, split: str, choose: Any, rows: int = 200) -> dict[str, float]:
    """Means of the first rows of a split: reward, share kept, and accuracy of the classifier."""
    env = gymnasium.make(ENV_ID, run=run, split=split)
    examples = env.unwrapped.task.examples
    rows = min(rows, len(examples))
    found: dict[str, list[float]] = {"reward": [], "kept": [], "accuracy": []}
    for row, label in enumerate(examples.batch(range(rows)).labels):
        observation, _ = env.reset(options={"row": row})
        _, paid, _, _, info = env.step(choose(observation))
        found["reward"].append(paid)
        found["kept"].append(info["kept"])
        found["accuracy"].append(info["prediction"] == label)
    return {name: float(np.mean(values)) for name, values in found.items()}


def main() -> None:
    """Train, and print what the agent and random bits reach on both splits."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", help="directory of a run, such as runs/demo")
    parser.add_argument("--steps", type=int, default=50_000, help="sentences to train on")
    asked = parser.parse_args()
    envs = make_vec_env(ENV_ID, n_envs=16, seed=0, env_kwargs={"run": asked.run})
    network = {"features_extractor_class": Words, "net_arch": []}
    ppo = PPO(
        "MultiInputPolicy", envs, n_steps=64, batch_size=256, n_epochs=4, learning_rate=3e-3,
        gamma=0.0, policy_kwargs=network, seed=0, device="cpu",
    )  # fmt: skip
    ppo.learn(asked.steps)
    draw = np.random.default_rng(0)
    bits = envs.action_space.shape
    agents = {
        "PPO": lambda observation: ppo.predict(observation, deterministic=True)[0],
        "random bits": lambda observation: draw.integers(0, 2, bits),
        "all words": lambda observation: np.ones(bits, np.int8),
    }
    for name, choose in agents.items():
        for split in ("train", "test"):
            means = score(asked.run, split, choose)
            print(f"{name:12} {split:6}", *(f"{key} {value:6.3f}" for key, value in means.items()))


if __name__ == "__main__":
    main()
