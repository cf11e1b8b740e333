"""The environment over a prepared directory, named by its path."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from rss_rl import envs
from rss_rl.data.corpora.planted import PlantedSettings, planted
from rss_rl.data.prepare import prepare
from rss_rl.errors import DataError


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("planted") / "prepared"
    settings = PlantedSettings(train=30, dev=9, test=9)
    prepare(planted(seed=1, settings=settings), out, dim=4)
    return out


def test_a_directory_and_a_split_are_enough(prepared: Path, reward_model: Any) -> None:
    env = gym.make(
        envs.ENV_ID,
        prepared=str(prepared),
        split="dev",
        reward_model=reward_model,
        render_mode="ansi",
    )
    check_env(env.unwrapped)
    rows = {env.reset(seed=seed)[1]["row"] for seed in range(200)}
    assert rows == set(range(9))
    env.reset(options={"row": 0})
    assert env.render().endswith(" .")
    env.step(np.ones(env.action_space.shape, np.int8))
    assert all(word.endswith("]hd") for word in env.render().split())
    highest = max(int(env.observation_space[name].high.max()) for name in ("tokens_0",))
    assert 50 < highest < 500  # the size of the vocabulary bounds the ids


def test_an_unknown_split_is_refused(prepared: Path, reward_model: Any) -> None:
    with pytest.raises(DataError, match="trian"):
        gym.make(envs.ENV_ID, prepared=prepared, split="trian", reward_model=reward_model)
