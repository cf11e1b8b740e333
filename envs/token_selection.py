"""The single environment: an episode is one example, one selection of its tokens, one reward."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import error

from rss_rl.envs.interface import RewardLike, SelectionInterface, Words, make_reward, open_examples
from rss_rl.envs.rewards import Penalty
from rss_rl.reward_models.protocol import RewardModel
from rss_rl.types import Array, ExampleSource


class TokenSelectionEnv(gym.Env[dict[str, Array], Array]):
    """One-step episodes over the examples of a split.

    Observation (Dict), for each sentence slot s: `tokens_s` int64 [max_len], padding 0, and
    `valid_s` int8 [max_len], 1 = real token. Action (MultiBinary): S * 2 * max_len bits, ordered
    by sentence, role (heads first) and token; bits on padding are ignored. Reward: see
    `rss_rl.envs.rewards`. After the step, `info` has each term of the reward by name (`score`, or
    the reward model's names; `sparsity_cost`, `coherence_cost`) and `row, by_sentence, heads_kept,
    dependents_kept, kept` (shares of the real tokens; kept = head or dependent).

    `reset(options={"row": i})` picks an example; otherwise one is drawn with the seeded generator.

    Args:
        examples: the examples; or give `prepared`.
        reward_model: scores selections; frozen or still learning.
        reward: the `Reward` of a run; or, with `reward_model`, the section `reward` of a
            configuration or some of its keys.
        prepared, split: a directory written by `rss-rl data prepare`, and one of its splits.
        sparsity_cost, penalty, coherence_cost: single keys of that section.
        max_len: padded length of a sentence; the longest of the examples by default.
        vocabulary_size: bound of the token ids, if known.
        words: the words of a row, for rendering; by default `examples.words`, if it exists.
        render_mode: "ansi" or None.

    Raises:
        ConfigError: settings that do not fit together.
    """

    metadata: dict[str, Any] = {"render_modes": ["ansi"], "render_fps": 4}  # noqa: RUF012

    def __init__(
        self,
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
        self.observation_space = self._task.observation_space
        self.action_space = self._task.action_space
        self.render_mode = render_mode
        self._row: int | None = None
        self._chosen: tuple[Array, ...] | None = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Array], dict[str, Any]]:
        """Draw an example, or take the one of `options={"row": i}`.

        Raises:
            ConfigError: a row that does not exist.
        """
        super().reset(seed=seed)
        wanted = (options or {}).get("row")
        row = int(self.np_random.integers(self._task.size) if wanted is None else wanted)
        observation = self._observation(row)
        self._row, self._chosen = row, None
        return observation, {"row": row}

    def step(self, action: Array) -> tuple[dict[str, Array], float, bool, bool, dict[str, Any]]:
        """Score the selection; the episode terminates.

        Raises:
            gymnasium.error.ResetNeeded: `reset` was not called, or the episode is over.
            gymnasium.error.InvalidAction: a wrong shape, or entries other than 0 and 1.
        """
        if self._row is None or self._chosen is not None:
            raise error.ResetNeeded("an episode has one step: call reset() before each step()")
        batch = self._task.batch(np.array([self._row]))
        selections = self._task.selections(np.asarray(action)[None], batch)
        parts = self._task.reward.score(batch, selections)
        info = self._task.info(batch, selections, parts)
        self._chosen = tuple(s[0] for s in selections)
        one = {name: _scalar(values[0]) for name, values in info.items()}
        return self._observation(self._row), float(parts.total[0]), True, False, one

    def render(self) -> str | None:
        """One line a sentence, `[word]hd` where selected; None without a render mode."""
        if self.render_mode is None or self._row is None:
            return None
        return self._task.render(self._row, self._chosen)

    def _observation(self, row: int) -> dict[str, Array]:
        observed = self._task.observe(self._task.batch(np.array([row])))
        return {name: values[0] for name, values in observed.items()}


def _scalar(value: Any) -> Any:
    return value.item() if np.ndim(value) == 0 else value
