"""Shared by the single and the vector environment: spaces, observations, actions and `info`.

An action is one flat vector of S * 2 * max_len bits, ordered by sentence, role (heads first) and
token: several libraries refuse a MultiBinary space of more than one axis.

Legend: B examples, S sentences an example, N_s tokens of the batch's longest sentence in slot s.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

import numpy as np
from gymnasium import error, spaces

from rss_rl.config import RewardConfig, parse_section
from rss_rl.envs.rewards import Reward, RewardParts
from rss_rl.envs.shares import kept_shares
from rss_rl.errors import ConfigError
from rss_rl.types import DEPENDENT, HEAD, ROLES, Array, Batch, ExampleSource

Words = Callable[[int], tuple[tuple[str, ...], ...]]

RewardLike = Reward | RewardConfig | Mapping[str, Any]
"""A complete reward, or the section `reward` of a configuration, complete or in part."""

_ANY_ID = 2**31 - 1
_WHERE = "TokenSelection"


def make_reward(reward: RewardLike | None, reward_model: Any, **costs: Any) -> Reward:
    """The reward of an environment.

    Args:
        reward: the complete reward, or the costs of kept tokens; by default those of RunConfig.
        reward_model: scores selections, unless `reward` is complete.
        costs: single keys of the section `reward`; None = not given.

    Raises:
        ConfigError: no reward model or two, or costs given twice or out of range.
    """
    given = {name: value for name, value in costs.items() if value is not None}
    if isinstance(reward, Reward):
        twice = [*given, *(["reward_model"] if reward_model is not None else [])]
        if twice:
            raise ConfigError(
                f"{', '.join(twice)} given in addition to a complete `reward`",
                where=_WHERE,
                remedy="Give one of the two",
            )
        return reward
    if reward_model is None:
        raise ConfigError(
            "an environment needs a reward model",
            where=_WHERE,
            remedy="Give reward_model=, or reward= as a complete `rss_rl.envs.rewards.Reward`",
        )
    if isinstance(reward, RewardConfig):
        reward = reward.model_dump()
    twice = sorted(set(reward or {}) & set(given))
    if twice:
        raise ConfigError(
            f"{twice[0]} is given both as an argument and in `reward`",
            where=_WHERE,
            remedy="Give one of the two",
        )
    section = parse_section(RewardConfig, {**(reward or {}), **given}, where=_WHERE)
    return Reward(section, reward_model)


def open_examples(
    examples: ExampleSource | None, prepared: str | Path | None, split: str
) -> tuple[ExampleSource, int | None]:
    """The examples of an environment and their vocabulary size, if known.

    Args:
        examples: given directly, or None.
        prepared: a directory written by `rss-rl data prepare`, its URI, or None.
        split: of the prepared data.

    Raises:
        ConfigError: both, neither, or an empty split.
        DataError: the directory or the split cannot be read.
    """
    if (examples is None) == (prepared is None):
        raise ConfigError(
            "an environment needs either `examples` or `prepared`",
            where=_WHERE,
            remedy="Give one of the two",
        )
    size = None
    if prepared is not None:
        from rss_rl.data.store import open_prepared

        dataset = open_prepared(prepared)
        examples, size = dataset.split(split), len(dataset.vocabulary)
    assert examples is not None
    if len(examples) == 0:
        raise ConfigError(
            "there is no example to draw",
            where=_WHERE,
            remedy="Choose a split that has rows",
        )
    return examples, size


class SelectionInterface:
    """Translates between Gymnasium's padded spaces and batches of examples.

    Args:
        reward: of selections; called once for any number of examples.
        max_len: padded length of every sentence; the longest of `examples` by default.
        vocabulary_size: bound of the token ids; any int32 by default.
        words: the words of a row, for rendering; ids are shown without it.

    Raises:
        ConfigError: a sentence longer than max_len.
    """

    def __init__(
        self,
        examples: ExampleSource,
        reward: Reward,
        *,
        max_len: int | None,
        vocabulary_size: int | None,
        words: Words | None,
    ) -> None:
        self.examples, self.reward = examples, reward
        self.size = len(examples)
        self._words = words
        longest = max(1, int(examples.lengths().max()))
        self.max_len = longest if max_len is None else max_len
        if self.max_len < longest:
            raise ConfigError(
                f"the longest sentence has {longest} tokens, more than {self.max_len}",
                where="max_len",
                remedy=f"Give at least {longest}, or leave it out",
            )
        self._slots = range(examples.sentences)
        self.action_space = spaces.MultiBinary(len(self._slots) * ROLES * self.max_len)
        last = _ANY_ID if vocabulary_size is None else vocabulary_size - 1
        parts: dict[str, spaces.Space[Any]] = {}
        for s in self._slots:
            parts[f"tokens_{s}"] = spaces.Box(0, last, (self.max_len,), np.int64)
            parts[f"valid_{s}"] = spaces.MultiBinary(self.max_len)
        self.observation_space = cast(spaces.Space[dict[str, Array]], spaces.Dict(parts))

    def batch(self, rows: Array) -> Batch:
        """The examples of `rows`.

        Raises:
            ConfigError: a row that does not exist.
        """
        missing = rows[(rows < 0) | (rows >= self.size)]
        if missing.size:
            raise ConfigError(
                f"row {missing[0]} does not exist",
                where="reset options",
                remedy=f"Rows are 0 to {self.size - 1}",
            )
        return self.examples.batch(rows)

    def observe(self, batch: Batch) -> dict[str, Array]:
        """Fresh observation arrays, [B, max_len] each; the label is not among them."""
        shape = (len(batch), self.max_len)
        observation: dict[str, Array] = {}
        for s, (tokens, valid) in enumerate(zip(batch.tokens, batch.valid, strict=True)):
            padded, real = np.zeros(shape, np.int64), np.zeros(shape, np.int8)
            padded[:, : tokens.shape[1]] = tokens
            real[:, : valid.shape[1]] = valid
            observation[f"tokens_{s}"], observation[f"valid_{s}"] = padded, real
        return observation

    def selections(self, actions: Any, batch: Batch) -> tuple[Array, ...]:
        """Actions [B, S * 2 * max_len] as selections, S x bool [B, 2, N_s].

        Bits on padding are kept; everything that counts or scores selections ignores them.

        Raises:
            gymnasium.error.InvalidAction: a wrong shape, or entries other than 0 and 1.
        """
        bits = np.asarray(actions)
        expected = (len(batch), self.action_space.shape[0])
        if bits.shape != expected:
            raise error.InvalidAction(f"actions must be {expected}, got {bits.shape}")
        if bits.dtype != np.bool_ and not ((bits == 0) | (bits == 1)).all():
            raise error.InvalidAction("actions must be 0 or 1")
        by_slot = bits.astype(np.bool_).reshape(len(batch), len(self._slots), ROLES, self.max_len)
        return tuple(by_slot[:, s, :, : valid.shape[1]] for s, valid in enumerate(batch.valid))

    def info(
        self, batch: Batch, selections: tuple[Array, ...], parts: RewardParts
    ) -> dict[str, Array]:
        """The terms of the reward and the shares kept, [B] each (by_sentence [B, S])."""
        shares = kept_shares(selections, batch.valid)
        return {
            **{name: values.astype(np.float64) for name, values in parts.scores.items()},
            **{name: cost.sum(1, dtype=np.float64) for name, cost in parts.costs.items()},
            "row": batch.rows.astype(np.int64),
            "by_sentence": parts.by_sentence.astype(np.float64),
            "heads_kept": shares.heads,
            "dependents_kept": shares.dependents,
            "kept": shares.kept,
        }

    def render(self, row: int, selections: tuple[Array, ...] | None) -> str:
        """One line a sentence; a selected word is marked `[word]hd` (head, dependent or both).

        Args:
            selections: S x bool [2, N_s], or None before the action.
        """
        if self._words is not None:
            sentences = self._words(row)
        else:
            batch = self.examples.batch([row])
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
