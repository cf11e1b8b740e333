"""Registers the environment with Gymnasium."""

from __future__ import annotations

import gymnasium as gym

ENV_ID = "rss_rl/TokenSelection-v0"


def register() -> None:
    """Register `rss_rl/TokenSelection-v0`, single and batched; a second call changes nothing."""
    if ENV_ID not in gym.registry:
        gym.register(
            ENV_ID,
            entry_point="rss_rl.envs.token_selection:TokenSelectionEnv",
            vector_entry_point="rss_rl.envs.vector:TokenSelectionVectorEnv",
        )
