"""The reward of a run, and scoring many selections in calls of bounded size.

Legend: K selections an example, B examples, S sentences, N_s tokens of slot s.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from rss_rl.config import RunConfig
from rss_rl.envs.rewards import Reward, RewardParts
from rss_rl.reward_models.protocol import RewardSetup
from rss_rl.rollouts.snapshot import Models
from rss_rl.types import Array, Batch, ExampleSource


def build_reward(
    config: RunConfig,
    models: Models,
    examples: ExampleSource,
    words: Sequence[str] | None = None,
    device: torch.device | str = "cpu",
) -> Reward:
    """The reward of a run, which samplers, evaluation and environments share.

    Args:
        models: their classifier is shared with the reward model, if that needs one.
        examples: of the run's task.
        words: of the token ids; None if unknown.
        device: of the classifier's weights.

    Raises:
        ConfigError: see the component in `reward.model`.
    """
    setup = RewardSetup(examples.labels, examples.sentences, models.classifier, str(device), words)
    return Reward.build(config.reward, setup)


def score_in_calls(
    reward: Reward, batch: Batch, selections: Sequence[Array], most: int | None
) -> RewardParts:
    """As `reward.score`, in calls of a limited number of tokens.

    A call has all selections of some examples, which share computation, or some of one example.

    Args:
        selections: S x bool [K * B, 2, N_s].
        most: padded tokens of the selections in a call; a longer selection is a call of its own.
            None: one call.
    """
    examples, width = len(batch), sum(valid.shape[1] for valid in batch.valid)
    samples = len(selections[0]) // examples
    if most is None or samples * examples * width <= most:
        return reward.score(batch, selections)
    rows = max(1, most // width)
    many, few = max(1, rows // samples), min(rows, samples)
    numbers = np.arange(samples * examples).reshape(samples, examples)
    calls = [
        numbers[first : first + few, start : start + many]
        for start in range(0, examples, many)
        for first in range(0, samples, few)
    ]
    parts = [
        reward.score(batch.take(call[0] % examples), [each[call.ravel()] for each in selections])
        for call in calls
    ]
    order = np.argsort(np.concatenate([call.ravel() for call in calls]))
    scores, costs = (
        {name: np.concatenate([terms[name] for terms in kind])[order] for name in kind[0]}
        for kind in ([part.scores for part in parts], [part.costs for part in parts])
    )
    return RewardParts(scores, costs)
