"""The natively batched environment: B examples a step, one reward-model call.

One generator draws the rows of the whole batch, so a seed gives different examples than in B
single environments; `reset(options={"rows": ...})` gives the same ones.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import error
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from rss_rl.envs.interface import RewardLike, SelectionInterface, Words, make_reward, open_examples
from rss_rl.envs.rewards import Penalty
from rss_rl.errors import ConfigError, nearest
from rss_rl.reward_models.protocol import RewardModel
from rss_rl.types import Array, Batch, ExampleSource

Step = tuple[dict[str, Array], Array, Array, Array, dict[str, Any]]


class TokenSelectionVectorEnv(VectorEnv[dict[str, Array], Array, Array]):
    """`num_envs` parallel one-step episodes; spaces and `info` as in `TokenSelectionEnv`.

    Autoreset modes: SAME_STEP (default) draws the next examples within the step and puts the
    finished ones into `info["final_obs"]` and `info["final_info"]`; NEXT_STEP resets in the next
    call (reward 0); DISABLED waits for `reset(options={"reset_mask": bool [num_envs]})`.

    Args:
        num_envs: parallel episodes, B.
        autoreset_mode: a Gymnasium `AutoresetMode` or its value, such as "SameStep".

    The other arguments are those of `TokenSelectionEnv`.

    Raises:
        ConfigError: settings that do not fit together.
    """

    metadata: dict[str, Any] = {"render_modes": ["ansi"], "render_fps": 4}  # noqa: RUF012

    def __init__(
        self,
        num_envs: int = 1,
        *,
        reward_model: RewardModel | None = None,
        reward: RewardLike | None = None,
        examples: ExampleSource | None = None,
        prepared: str | Path | None = None,
        split: str = "train",
        sparsity_cost: float | None = None,
        penalty: Penalty | None = None,
        coherence_cost: float | None = None,
        max_len: int | None = None,
        vocabulary_size: int | None = None,
        words: Words | None = None,
        render_mode: str | None = None,
        autoreset_mode: AutoresetMode | str = AutoresetMode.SAME_STEP,
    ) -> None:
        found, size = open_examples(examples, prepared, split)
        self._task = SelectionInterface(
            found,
            make_reward(
                reward,
                reward_model,
                sparsity_cost=sparsity_cost,
                penalty=penalty,
                coherence_cost=coherence_cost,
            ),
            max_len=max_len,
            vocabulary_size=vocabulary_size or size,
            words=words or getattr(found, "words", None),
        )
        self.num_envs = num_envs
        self.single_observation_space = self._task.observation_space
        self.single_action_space = self._task.action_space
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.render_mode = render_mode
        self._mode = _autoreset(autoreset_mode)
        self.metadata = {**self.metadata, "autoreset_mode": self._mode}
        self._current: Batch | None = None  # the examples of all episodes
        self._over = np.zeros(num_envs, np.bool_)  # episodes that wait for their reset
        self._chosen: list[tuple[Array, ...] | None] = [None] * num_envs

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Array], dict[str, Any]]:
        """Draw an example for each episode.

        Options: `rows` int [num_envs] picks the examples; `reset_mask` bool [num_envs] resets
        only some episodes.

        Raises:
            ConfigError: options of a wrong shape, or a row that does not exist.
        """
        super().reset(seed=seed)
        chosen = dict(options or {})
        mask = np.asarray(chosen.get("reset_mask", np.ones(self.num_envs, np.bool_)))
        if mask.shape != (self.num_envs,) or mask.dtype != np.bool_:
            raise ConfigError(
                f"reset_mask is {mask.dtype} {mask.shape}",
                where="reset options",
                remedy=f"Give a boolean array of shape ({self.num_envs},)",
            )
        if self._current is None and not mask.all():
            raise error.ResetNeeded("the first reset() draws all examples: leave out reset_mask")
        rows = self._drawn(mask, chosen.get("rows"))
        self._current, self._over = self._task.batch(rows), self._over & ~mask
        self._forget(mask)
        return self._task.observe(self._current), {"row": rows.copy(), "_row": mask.copy()}

    def step(self, actions: Array) -> Step:
        """Score the selections of all running episodes with one reward-model call.

        Raises:
            gymnasium.error.ResetNeeded: `reset` was not called, or autoreset is disabled and an
                episode is over.
            gymnasium.error.InvalidAction: a wrong shape, or entries other than 0 and 1.
        """
        if self._current is None or (self._mode is AutoresetMode.DISABLED and self._over.any()):
            raise error.ResetNeeded("an episode has one step: call reset() before each step()")
        running = ~self._over
        rewards, infos = self._score(np.asarray(actions), running, self._current)
        if self._mode is AutoresetMode.SAME_STEP:
            infos = self._finished(infos, running, self._current)
            starting = running
        else:
            starting = self._over  # NEXT_STEP: this call is the reset of these episodes
            self._over = running.copy()
        if starting.any():
            self._current = self._task.batch(self._drawn(starting, None))
            self._forget(starting)
        infos |= {"row": self._current.rows.copy(), "_row": np.ones(self.num_envs, np.bool_)}
        observation = self._task.observe(self._current)
        return observation, rewards, running, np.zeros(self.num_envs, np.bool_), infos

    def render(self) -> tuple[str, ...] | None:
        """`TokenSelectionEnv.render` of each episode; None without a render mode."""
        if self.render_mode is None or self._current is None:
            return None
        return tuple(
            self._task.render(int(row), selections)
            for row, selections in zip(self._current.rows, self._chosen, strict=True)
        )

    def _forget(self, starting: Array) -> None:
        """Drop the selections, kept for rendering only, of the episodes that begin."""
        if self.render_mode is not None:
            pairs = zip(starting, self._chosen, strict=True)
            self._chosen = [None if new else chosen for new, chosen in pairs]

    def _drawn(self, mask: Array, wanted: Any) -> Array:
        """The current rows, with those of `mask` replaced by wanted or newly drawn ones."""
        current = None if self._current is None else self._current.rows
        if wanted is None:
            rows = np.zeros(self.num_envs, np.int64) if current is None else current.copy()
            rows[mask] = self.np_random.integers(self._task.size, size=int(mask.sum()))
            return rows
        given = np.asarray(wanted, dtype=np.int64)
        if given.shape != mask.shape:
            raise ConfigError(
                f"rows has shape {given.shape}",
                where="reset options",
                remedy=f"Give {self.num_envs} rows",
            )
        return given.copy() if current is None else np.where(mask, given, current)

    def _score(
        self, actions: Array, running: Array, current: Batch
    ) -> tuple[Array, dict[str, Any]]:
        """Rewards float64 [B] and info of the running episodes; zeros for the others."""
        if actions.shape != self.action_space.shape:
            raise error.InvalidAction(
                f"actions must be {self.action_space.shape}, got {actions.shape}"
            )
        rewards, infos = np.zeros(self.num_envs), {}
        indices = np.flatnonzero(running)
        if len(indices):
            batch = current if running.all() else self._task.batch(current.rows[indices])
            selections = self._task.selections(actions[indices], batch)
            parts = self._task.reward.score(batch, selections)
            rewards[indices] = parts.total
            for name, values in self._task.info(batch, selections, parts).items():
                infos[name] = np.zeros((self.num_envs, *values.shape[1:]), values.dtype)
                infos[name][indices] = values
                infos[f"_{name}"] = running.copy()
            if self.render_mode is not None:
                for b, i in enumerate(indices):
                    self._chosen[i] = tuple(s[b] for s in selections)
        return rewards, infos

    def _finished(self, infos: dict[str, Any], running: Array, current: Batch) -> dict[str, Any]:
        """The info of a step after which the finished episodes restart."""
        last = self._task.observe(current)
        final = np.full(self.num_envs, None, dtype=object)
        for i in np.flatnonzero(running):
            final[i] = {name: values[i] for name, values in last.items()}
        return {
            "final_obs": final,
            "_final_obs": running.copy(),
            "final_info": infos,
            "_final_info": running.copy(),
        }


def _autoreset(mode: AutoresetMode | str) -> AutoresetMode:
    try:
        return AutoresetMode(mode)
    except ValueError:
        known = [m.value for m in AutoresetMode]
        raise ConfigError(
            f"unknown autoreset mode '{mode}'{nearest(str(mode), known)}",
            where="autoreset_mode",
            remedy=f"Choose one of {', '.join(known)}",
        ) from None
