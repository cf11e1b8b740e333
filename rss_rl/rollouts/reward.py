"""The reward of a run."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from rss_rl.config import RunConfig
from rss_rl.envs.rewards import Reward
from rss_rl.reward_models.protocol import RewardSetup
from rss_rl.rollouts.snapshot import Models
from rss_rl.types import ExampleSource


def build_reward(
    config: RunConfig,
    models: Models,
    examples: ExampleSource,
    words: Sequence[str] | None = None,
    device: torch.device | str = "cpu",
) -> Reward:
    """The reward of a run, which samplers, evaluation and environments share.

    Args:
        models: whose classifier scores, where the reward model asks one, with its present weights.
        examples: of the run's task.
        words: of the token ids; None where nobody knows them.
        device: where the classifier's weights live.

    Raises:
        ConfigError: see the component in `reward.model`.
    """
    setup = RewardSetup(examples.labels, examples.sentences, models.classifier, str(device), words)
    return Reward.build(config.reward, setup)
