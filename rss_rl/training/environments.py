"""The environment that a run trains on, as a Gymnasium environment."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym

from rss_rl.config import RunConfig
from rss_rl.envs import ENV_ID
from rss_rl.rollouts.reward import build_reward
from rss_rl.rollouts.snapshot import build_prepared_models, open_data
from rss_rl.training.trained_models import open_models


def make_env(
    run: Path | str | RunConfig,
    split: str = "train",
    *,
    which: str | int = "best",
    num_envs: int | None = None,
    **settings: Any,
) -> Any:
    """`rss_rl/TokenSelection-v0` with the data and the reward of a run.

    Args:
        run: the directory of a run, whose classifier is loaded from a checkpoint; or a
            configuration, whose classifier is untrained.
        split: of the run's data.
        which: checkpoint of a run: `best`, `latest` or a step.
        num_envs: None for a single environment, else the size of a batched one.
        settings: further arguments of the environment, such as `max_len` or `render_mode`.

    Returns:
        A `gymnasium.Env`, or with `num_envs` a `gymnasium.vector.VectorEnv`.

    Raises:
        RssError: no run, no such checkpoint or split, or data that cannot be read.
    """
    if isinstance(run, RunConfig):
        config, prepared = run, open_data(run)
        models = build_prepared_models(config, prepared)
    else:
        config, models, _ = open_models(run, which)
        prepared = open_data(config)
    examples, vocabulary = prepared.split(split), prepared.vocabulary
    reward = build_reward(config, models, examples, vocabulary.words)
    given: dict[str, Any] = {
        "examples": examples,
        "reward": reward,
        "vocabulary_size": len(vocabulary),
    } | settings
    if num_envs is None:
        return gym.make(ENV_ID, **given)
    return gym.make_vec(ENV_ID, num_envs=num_envs, **given)
