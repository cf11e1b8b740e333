"""Token selection as a Gymnasium environment, and its reward.

Importing it registers `rss_rl/TokenSelection-v0` with Gymnasium:

    import gymnasium, rss_rl.envs
    gymnasium.make("rss_rl/TokenSelection-v0", run="runs/demo", split="test")
    gymnasium.make_vec("rss_rl/TokenSelection-v0", num_envs=64, run="runs/demo")
    gymnasium.make("rss_rl/TokenSelection-v0", prepared="DIR", reward_model=..., sparsity_cost=0.02)

For the arguments see `rss_rl.training.environments.find_task`.
"""

from __future__ import annotations

__all__ = ["ENV_ID"]

import gymnasium as gym

ENV_ID = "rss_rl/TokenSelection-v0"

if ENV_ID not in gym.registry:
    gym.register(
        ENV_ID,
        entry_point="rss_rl.training.environments:make_env",
        vector_entry_point="rss_rl.training.environments:make_vector_env",
    )
