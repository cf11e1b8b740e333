"""The task of a run."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from rss_rl.config import RunConfig
from rss_rl.envs.task import SelectionTask, build_reward_model
from rss_rl.policies.policy import bits_per_token
from rss_rl.reading.models import Models
from rss_rl.reward_models.reward_model import RewardSetup
from rss_rl.types import ExampleSource


def run_task(
    config: RunConfig,
    models: Models,
    examples: ExampleSource,
    words: Sequence[str] | None = None,
    device: torch.device | str = "cpu",
) -> SelectionTask:
    """The task of a run, which samplers, evaluation and environments share.

    Args:
        models: their classifier is shared with the reward model, if that needs one.
        words: of the token ids; None if unknown.
        device: of the classifier's weights.

    Raises:
        ConfigError: see the component in `reward.model`.
    """
    setup = RewardSetup(examples.labels, examples.sentences, models.classifier, str(device), words)
    return SelectionTask(
        examples,
        build_reward_model(config.reward, setup),
        config.reward,
        bits=bits_per_token(models.policy),
    )
