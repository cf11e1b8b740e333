"""The natively batched environment: B examples a step, one reward-model call.

One generator draws the rows of the whole batch, so a seed gives different examples than in B
single environments; `reset(options={"rows": ...})` gives the same ones.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import error
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from rss_rl.envs.spaces import SelectionSpaces, autoreset_of
from rss_rl.envs.task import SelectionTask
from rss_rl.errors import ConfigError
from rss_rl.types import Array, Batch

Step = tuple[dict[str, Array], Array, Array, Array, dict[str, Any]]


class TokenSelectionVectorEnv(VectorEnv[dict[str, Array], Array, Array]):
    """`num_envs` parallel one-step episodes; spaces and `info` as in `TokenSelectionEnv`.

    Autoreset modes: SAME_STEP (default) draws the next examples within the step and puts the
    finished ones into `info["final_obs"]` and `info["final_info"]`; NEXT_STEP resets in the next
    call (reward 0); DISABLED waits for `reset(options={"reset_mask": bool [num_envs]})`.

    Args:
        num_envs: parallel episodes, B.
        autoreset_mode: a Gymnasium `AutoresetMode` or its value, such as "SameStep".

    Raises:
        ConfigError: no episode, an unknown mode, or see `SelectionSpaces`.
    """

    metadata: dict[str, Any] = {"render_modes": ["ansi"], "render_fps": 4}  # noqa: RUF012

    def __init__(
        self,
        num_envs: int,
        task: SelectionTask,
        render_mode: str | None = None,
        autoreset_mode: AutoresetMode | str = AutoresetMode.SAME_STEP,
    ) -> None:
        if not isinstance(num_envs, int | np.integer) or num_envs < 1:
            raise ConfigError(
                f"{num_envs!r:.40} episodes", where="num_envs", remedy="Give 1 or more"
            )
        self.task, self._spaces = task, SelectionSpaces(task)
        self.num_envs, self.render_mode = num_envs, render_mode
        self.single_observation_space = self._spaces.observations
        self.single_action_space = self._spaces.actions
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._mode = autoreset_of(autoreset_mode)
        self.metadata = {**self.metadata, "autoreset_mode": self._mode}
        self._batch: Batch | None = None  # the examples of all episodes
        self._over = np.zeros(num_envs, np.bool_)  # episodes that wait for their reset
        self._selected: list[tuple[Array, ...] | None] = [None] * num_envs

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
        mask = self._option(options, "reset_mask", np.ones(self.num_envs, np.bool_))
        if self._batch is None and not mask.all():
            raise error.ResetNeeded("the first reset() draws all examples: leave out reset_mask")
        batch = self._begin(mask, self._option(options, "rows", None))
        self._over = self._over & ~mask
        return self._spaces.observation(batch), {"row": batch.rows.copy(), "_row": mask.copy()}

    def step(self, actions: Array) -> Step:
        """Score the selections of all running episodes with one reward-model call.

        Raises:
            gymnasium.error.ResetNeeded: `reset` was not called, or autoreset is disabled and an
                episode is over.
            gymnasium.error.InvalidAction: a wrong shape, or entries other than 0 and 1.
        """
        batch = self._batch
        if batch is None or (self._mode is AutoresetMode.DISABLED and self._over.any()):
            raise error.ResetNeeded("an episode has one step: call reset() before each step()")
        running = ~self._over
        rewards, infos = self._score(np.asarray(actions), running, batch)
        if self._mode is AutoresetMode.SAME_STEP:
            infos = self._finished(infos, running, batch)
            batch = self._begin(running)
        else:
            if self._over.any():  # NEXT_STEP: this call is the reset of these episodes
                batch = self._begin(self._over)
            self._over = running.copy()
        infos |= {"row": batch.rows.copy(), "_row": np.ones(self.num_envs, np.bool_)}
        truncated = np.zeros(self.num_envs, np.bool_)
        return self._spaces.observation(batch), rewards, running, truncated, infos

    def render(self) -> tuple[str, ...] | None:
        """`TokenSelectionEnv.render` of each episode; None without a render mode."""
        if self.render_mode is None or self._batch is None:
            return None
        pairs = zip(self._batch.rows, self._selected, strict=True)
        return tuple(self._spaces.render(int(row), selections) for row, selections in pairs)

    def _option(self, options: dict[str, Any] | None, name: str, default: Any) -> Any:
        """An option of `reset`: one number or truth value an episode."""
        option = (options or {}).get(name)
        if option is None:
            return default
        array, kind = np.asarray(option), "b" if name == "reset_mask" else "iu"
        if array.shape != (self.num_envs,) or array.dtype.kind not in kind:
            raise ConfigError(
                f"{name} is {array.dtype} {array.shape}",
                where="reset options",
                remedy=f"Give {self.num_envs} {'truth values' if kind == 'b' else 'rows'}",
            )
        return array

    def _begin(self, starting: Array, wanted: Array | None = None) -> Batch:
        """Begin episodes with the wanted rows, or with newly drawn ones."""
        before = np.zeros(self.num_envs, np.int64) if self._batch is None else self._batch.rows
        if wanted is None:
            wanted = np.zeros(self.num_envs, np.int64)
            size, count = len(self.task.examples), int(starting.sum())
            wanted[starting] = self.np_random.integers(size, size=count)
        rows = np.where(starting, wanted, before)
        self._batch = self.task.observe(rows)
        pairs = zip(starting, self._selected, strict=True)
        self._selected = [None if new else selected for new, selected in pairs]
        return self._batch

    def _score(self, actions: Array, running: Array, batch: Batch) -> tuple[Array, dict[str, Any]]:
        """Rewards float64 [B] and info of the running episodes; zeros for the others."""
        if actions.shape != self.action_space.shape:
            raise error.InvalidAction(
                f"actions must be {self.action_space.shape}, got {actions.shape}"
            )
        rewards, infos = np.zeros(self.num_envs), {}
        indices = np.flatnonzero(running)
        if len(indices):
            scored = batch if running.all() else self.task.observe(batch.rows[indices])
            selections = self._spaces.selections(actions[indices], scored)
            terms = self.task.step(scored, selections, predict=True)
            rewards[indices] = terms.total
            for name, values in self._spaces.info(scored, selections, terms).items():
                infos[name] = np.zeros((self.num_envs, *values.shape[1:]), values.dtype)
                infos[name][indices] = values
                infos[f"_{name}"] = running.copy()
            for b, i in enumerate(indices):
                self._selected[i] = tuple(s[b] for s in selections)
        return rewards, infos

    def _finished(self, infos: dict[str, Any], running: Array, batch: Batch) -> dict[str, Any]:
        """The info of a step after which the finished episodes restart."""
        last = self._spaces.observation(batch)
        final = np.full(self.num_envs, None, dtype=object)
        for i in np.flatnonzero(running):
            final[i] = {name: values[i] for name, values in last.items()}
        return {
            "final_obs": final,
            "_final_obs": running.copy(),
            "final_info": infos,
            "_final_info": running.copy(),
        }
