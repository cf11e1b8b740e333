"""Token selection as a Gymnasium environment, and its reward.

Importing it registers `rss_rl/TokenSelection-v0` with Gymnasium. `ENV_ID` also names this module,
which Gymnasium then imports by itself, in another process, too:

    import gymnasium
    from rss_rl.envs import ENV_ID  # "rss_rl.envs:rss_rl/TokenSelection-v0"
    gymnasium.make(ENV_ID, run="runs/demo", split="test")
    gymnasium.make_vec(ENV_ID, num_envs=64, run="runs/demo")
    gymnasium.make(ENV_ID, prepared="DIR", reward_model=..., sparsity_cost=0.02)

For the arguments see `rss_rl.training.environments.find_task`.
"""

from __future__ import annotations

__all__ = ["ENV_ID"]

import gymnasium as gym

_NAME = "rss_rl/TokenSelection-v0"
ENV_ID = f"{__name__}:{_NAME}"

if _NAME not in gym.registry:
    gym.register(
        _NAME,
        entry_point="rss_rl.training.environments:make_env",
        vector_entry_point="rss_rl.training.environments:make_vector_env",
    )
