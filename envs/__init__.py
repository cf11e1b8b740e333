"""Token selection as a Gymnasium environment, and its reward.

Importing it registers `rss_rl/TokenSelection-v0` with Gymnasium:

    from rss_rl import envs
    gymnasium.make("rss_rl/TokenSelection-v0", examples=..., reward_model=..., sparsity_cost=0.02)
    gymnasium.make_vec("rss_rl/TokenSelection-v0", num_envs=64, prepared="DIR", reward_model=...)

`rss_rl.training.environments.make_env` makes the environment of a run or a configuration.
"""

from __future__ import annotations

__all__ = ["ENV_ID"]

from rss_rl.envs.registration import ENV_ID, register

register()
