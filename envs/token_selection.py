"""The single environment: an episode is one example, one selection of its tokens, one reward."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import error

from rss_rl.envs.spaces import SelectionSpaces
from rss_rl.envs.task import TASK, SelectionTask
from rss_rl.errors import ConfigError
from rss_rl.types import Array, Batch


class TokenSelectionEnv(gym.Env[dict[str, Array], Array]):
    """One-step episodes over the examples of a task.

    Observation (Dict), for each sentence slot s: `tokens_s` int64 [max_len], padding 0, and
    `valid_s` int8 [max_len], 1 = real token. Action (MultiBinary): S * R * max_len bits, ordered by
    sentence, bit of a token (heads first) and token; bits on padding are ignored. Reward: see
    `rss_rl.envs.rewards`. After the step, `info` has each term of the reward by name
    (`log_likelihood`, or the reward model's names; `sparsity_cost`, `coherence_cost`), `prediction`
    if the reward model predicts, and `row, by_sentence, heads_kept, dependents_kept, kept` (shares
    of the real tokens; kept = head or dependent).

    `reset(options={"row": i})` picks an example; otherwise one is drawn with the seeded generator.

    Args:
        render_mode: "ansi" or None.

    Raises:
        ConfigError: see `SelectionSpaces`.
    """

    metadata: dict[str, Any] = {"render_modes": ["ansi"], "render_fps": 4}  # noqa: RUF012

    def __init__(self, task: SelectionTask, render_mode: str | None = None) -> None:
        self.task, self._spaces = task, SelectionSpaces(task)
        self.observation_space, self.action_space = self._spaces.observations, self._spaces.actions
        self.render_mode = render_mode
        self._batch: Batch | None = None
        self._selected: tuple[Array, ...] | None = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Array], dict[str, Any]]:
        """Draw an example, or take the one of `options={"row": i}`.

        Raises:
            ConfigError: a row that does not exist, or is no whole number.
        """
        super().reset(seed=seed)
        row = (options or {}).get("row")
        if row is None:
            row = int(self.np_random.integers(len(self.task.examples)))
        elif isinstance(row, bool) or not isinstance(row, int | np.integer):
            raise ConfigError(
                f"{row!r:.40} is no row", where=TASK, remedy="Give its number: options={'row': 3}"
            )
        row = int(row)
        self._batch, self._selected = self.task.observe([row]), None
        return self._observation(self._batch), {"row": row}

    def step(self, action: Array) -> tuple[dict[str, Array], float, bool, bool, dict[str, Any]]:
        """Score the selection; the episode terminates.

        Raises:
            gymnasium.error.ResetNeeded: `reset` was not called, or the episode is over.
            gymnasium.error.InvalidAction: a wrong shape, or entries other than 0 and 1.
        """
        if self._batch is None or self._selected is not None:
            raise error.ResetNeeded("an episode has one step: call reset() before each step()")
        selections = self._spaces.selections(np.asarray(action)[None], self._batch)
        rewards = self.task.step(self._batch, selections, predict=True)
        info = self._spaces.info(self._batch, selections, rewards)
        self._selected = tuple(s[0] for s in selections)
        one = {name: _scalar(values[0]) for name, values in info.items()}
        return self._observation(self._batch), float(rewards.total[0]), True, False, one

    def render(self) -> str | None:
        """One line a sentence, `[word]hd` where selected; None without a render mode."""
        if self.render_mode is None or self._batch is None:
            return None
        return self._spaces.render(int(self._batch.rows[0]), self._selected)

    def _observation(self, batch: Batch) -> dict[str, Array]:
        return {name: values[0] for name, values in self._spaces.observation(batch).items()}


def _scalar(value: Any) -> Any:
    return value.item() if np.ndim(value) == 0 else value
