"""Shared by the single and the vector environment: spaces, observations, actions and `info`.

An action is one flat vector of S * R * max_len bits, ordered by sentence, bit of a token (heads
first) and token: several libraries refuse a MultiBinary space of more than one axis.

Legend: B examples, S sentences an example, N_s tokens of the batch's longest sentence in slot s,
R = 1 or 2 bits that are drawn for a token.
"""

from __future__ import annotations

from typing import Any, cast

import numpy as np
from gymnasium import error, spaces
from gymnasium.vector import AutoresetMode

from rss_rl.envs.rewards import kept_shares
from rss_rl.envs.task import SelectionTask
from rss_rl.errors import ConfigError, nearest
from rss_rl.reward_models.reward_model import Rewards
from rss_rl.types import DEPENDENT, HEAD, ROLES, Array, Batch

_ANY_ID = 2**31 - 1


class SelectionSpaces:
    """Translates between Gymnasium's padded spaces and batches of a task.

    Raises:
        ConfigError: there is no example, or one is longer than the task's `max_len`.
    """

    def __init__(self, task: SelectionTask) -> None:
        self._task, self._slots = task, range(task.examples.sentences)
        if len(task.examples) == 0:
            raise ConfigError(
                "there is no example to draw",
                where="TokenSelection",
                remedy="Choose a split that has rows",
            )
        longest = max(1, int(task.examples.lengths().max()))
        self._width = task.max_len or longest
        if self._width < longest:
            raise ConfigError(
                f"the longest sentence has {longest} tokens, more than {self._width}",
                where="max_len",
                remedy=f"Give at least {longest}, or leave it out",
            )
        self.actions = spaces.MultiBinary(len(self._slots) * task.bits * self._width)
        last = _ANY_ID if task.vocabulary_size is None else task.vocabulary_size - 1
        parts: dict[str, spaces.Space[Any]] = {}
        for s in self._slots:
            parts[f"tokens_{s}"] = spaces.Box(0, last, (self._width,), np.int64)
            parts[f"valid_{s}"] = spaces.MultiBinary(self._width)
        self.observations = cast(spaces.Space[dict[str, Array]], spaces.Dict(parts))

    def observation(self, batch: Batch) -> dict[str, Array]:
        """Fresh observation arrays, [B, max_len] each; the label is not among them."""
        shape = (len(batch), self._width)
        observed: dict[str, Array] = {}
        for s, (tokens, valid) in enumerate(zip(batch.tokens, batch.valid, strict=True)):
            padded, real = np.zeros(shape, np.int64), np.zeros(shape, np.int8)
            padded[:, : tokens.shape[1]] = tokens
            real[:, : valid.shape[1]] = valid
            observed[f"tokens_{s}"], observed[f"valid_{s}"] = padded, real
        return observed

    def selections(self, actions: Any, batch: Batch) -> tuple[Array, ...]:
        """Actions [B, S * R * max_len] as selections, S x bool [B, 2, N_s].

        Bits on padding are kept; everything that counts or scores selections ignores them.

        Raises:
            gymnasium.error.InvalidAction: a wrong shape, or entries other than 0 and 1.
        """
        bits = np.asarray(actions)
        expected = (len(batch), self.actions.shape[0])
        if bits.shape != expected:
            raise error.InvalidAction(f"actions must be {expected}, got {bits.shape}")
        if bits.dtype != np.bool_ and not ((bits == 0) | (bits == 1)).all():
            raise error.InvalidAction("actions must be 0 or 1")
        by_slot = bits.astype(np.bool_).reshape(len(batch), len(self._slots), -1, self._width)
        both = np.repeat(by_slot, ROLES // self._task.bits, axis=2)  # [B, S, 2, max_len]
        return tuple(both[:, s, :, : valid.shape[1]] for s, valid in enumerate(batch.valid))

    def info(
        self, batch: Batch, selections: tuple[Array, ...], rewards: Rewards
    ) -> dict[str, Array]:
        """The terms of the reward, the shares kept, [B] each (by_sentence [B, S]), and, of a reward
        model that predicts, `prediction` [B].
        """
        predicted = {} if rewards.predicted is None else {"prediction": rewards.predicted}
        return {
            **{name: values.astype(np.float64) for name, values in rewards.scores.items()},
            **{name: cost.sum(1, dtype=np.float64) for name, cost in rewards.costs.items()},
            **predicted,
            "row": batch.rows.astype(np.int64),
            "by_sentence": rewards.by_sentence.astype(np.float64),
            **kept_shares(selections, batch.valid),
        }

    def render(self, row: int, selections: tuple[Array, ...] | None) -> str:
        """One line a sentence; a selected word is marked `[word]hd` (head, dependent or both).

        Words are those of the examples, if they have a method `words`, else token ids.

        Args:
            selections: S x bool [2, N_s], or None before the action.
        """
        words = getattr(self._task.examples, "words", None)
        if words is not None:
            sentences = words(row)
        else:
            batch = self._task.observe([row])
            sentences = tuple(
                tuple(str(token) for token in tokens[0][valid[0]])
                for tokens, valid in zip(batch.tokens, batch.valid, strict=True)
            )
        return "\n".join(
            " ".join(
                _mark(word, None if selections is None else selections[s][:, i])
                for i, word in enumerate(sentence)
            )
            for s, sentence in enumerate(sentences)
        )


def _mark(word: str, bits: Array | None) -> str:
    if bits is None or not bits.any():
        return word
    return f"[{word}]{'h' * int(bits[HEAD])}{'d' * int(bits[DEPENDENT])}"


def autoreset_of(mode: AutoresetMode | str) -> AutoresetMode:
    """The autoreset mode of a name.

    Raises:
        ConfigError: there is none of this name.
    """
    try:
        return AutoresetMode(mode)
    except ValueError:
        known = [m.value for m in AutoresetMode]
        raise ConfigError(
            f"unknown autoreset mode '{mode}'{nearest(str(mode), known)}",
            where="autoreset_mode",
            remedy=f"Choose one of {', '.join(known)}",
        ) from None
