"""Search spaces: the configuration keys to tune, and their values.

A space is a YAML file of dotted keys, each with one kind of values:

    sampler.selections: {choice: [4, 8, 16]}
    learner.policy.learning_rate: {log: [5e-4, 1e-2]}
    model.dropout: {uniform: [0, 0.6]}
    policy.options.hidden: {integer: [50, 200]}
    phases.co-train.mixed_share: {uniform: [0, 0.8]}

Values are drawn independently at random. Settings that are invalid together are drawn again, and
none is returned twice.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import Field, model_validator

from rss_rl.components import EVERYTHING
from rss_rl.config import (
    RunConfig,
    Section,
    load_config,
    parse_config,
    parse_section,
    read_tree,
    with_overrides,
)
from rss_rl.errors import ConfigError, RssError
from rss_rl.seeding import generator

_FORCED = ("sampler.backend=local", "learner.actors=0", "evaluation.all_tokens=false")
"""Settings of every trial: it runs in one process, without the all-tokens comparison."""
_NOT_TUNED = {
    "data": "Trials are compared on the same rows",
    "seed": "Give --seeds instead",
    "evaluation": "Trials are compared by the same measure",
    "checkpoint": "It does not change the training result",
    "sampler.backend": "A trial runs in one process",
    "sampler.actors": "A trial runs in one process",
    "learner.actors": "A trial runs in one process",
    "reward.target_share": "Trials are compared at the same share: set it as KEY=VALUE",
}
_TRIES = 200
"""Draws in a row without new valid settings after which a space counts as exhausted."""
_DIGITS = 4

Settings = dict[str, Any]
"""Values by dotted key, as KEY=VALUE sets them."""


class Dimension(Section):
    """The values of one key, of exactly one kind."""

    choice: tuple[Any, ...] | None = Field(default=None, strict=False)
    uniform: tuple[float, float] | None = Field(default=None, strict=False)
    log: tuple[float, float] | None = Field(default=None, strict=False)
    integer: tuple[int, int] | None = Field(default=None, strict=False)

    @model_validator(mode="after")
    def _is_one(self) -> Dimension:
        given = [name for name in type(self).model_fields if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError("give one of choice, uniform, log and integer")
        values = getattr(self, given[0])
        if given[0] == "choice":
            if len({json.dumps(value, sort_keys=True) for value in values}) < max(2, len(values)):
                raise ValueError("choice needs at least two different values, each once")
        elif not values[0] < values[1]:
            raise ValueError(f"{given[0]} needs [low, high] with low below high")
        if given[0] == "log" and values[0] <= 0:
            raise ValueError("log needs numbers above 0")
        return self

    def draw(self, uniform: float) -> Any:
        """The value at the quantile `uniform` in [0, 1)."""
        if self.choice is not None:
            return copy.deepcopy(self.choice[int(uniform * len(self.choice))])
        if self.integer is not None:
            least, most = self.integer
            return least + int(uniform * (most - least + 1))
        if self.uniform is not None:
            low, high = self.uniform
            return _rounded(low + uniform * (high - low), low, high)
        assert self.log is not None
        low, high = self.log
        return _rounded(low * (high / low) ** uniform, low, high)

    def extremes(self) -> Sequence[Any]:
        """All choices, or both ends of a range."""
        return next(v for name in type(self).model_fields if (v := getattr(self, name)) is not None)


def _rounded(value: float, low: float, high: float) -> float:
    return min(high, max(low, float(f"{value:.{_DIGITS}g}")))


@dataclass(frozen=True)
class Space:
    """A search space; `where` is its file, for messages."""

    dimensions: Mapping[str, Dimension]
    where: str

    def draw(self, generator_: np.random.Generator) -> Settings:
        """One value per key."""
        uniforms = generator_.random(len(self.dimensions))
        dimensions = self.dimensions.items()
        return {key: own.draw(float(u)) for (key, own), u in zip(dimensions, uniforms, strict=True)}

    def as_tree(self) -> dict[str, Any]:
        """JSON data."""
        return {
            key: own.model_dump(mode="json", exclude_none=True)
            for key, own in self.dimensions.items()
        }


@dataclass(frozen=True)
class Base:
    """The base configuration of the trials: the tree from file and KEY=VALUE settings."""

    tree: Mapping[str, Any]
    where: str

    def with_settings(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """The tree with the given settings."""
        return with_overrides(self.tree, [f"{key}={json.dumps(v)}" for key, v in settings.items()])

    def configure(self, settings: Mapping[str, Any]) -> RunConfig:
        """The configuration of a trial.

        Raises:
            ConfigError: the settings are invalid.
        """
        tree = with_overrides(self.with_settings(settings), _FORCED)
        return parse_config(tree, where=self.where, trust=EVERYTHING)


def load_base(file: Path, overrides: Sequence[str] = ()) -> Base:
    """Load the base configuration of the trials.

    Raises:
        ConfigError: see `rss_rl.config.load_config`.
    """
    load_config(file, overrides)
    return Base(with_overrides(read_tree(file), overrides), str(file))


def load_space(file: Path, base: Base) -> Space:
    """Read a space, and check choices and bounds against the configuration.

    Raises:
        ConfigError: naming file, key and remedy.
    """
    tree = read_tree(file)
    if not tree:
        raise ConfigError("a search space has at least one key", where=str(file))
    dimensions = {}
    for key, given in tree.items():
        where = f"{file}: {key}"
        _check_key(key, where)
        if not isinstance(given, dict):
            raise ConfigError(
                "is not a set of values",
                where=where,
                remedy="Write {choice: [A, B]}, {uniform: [LOW, HIGH]}, {log: [LOW, HIGH]} or"
                " {integer: [LOW, HIGH]}",
            )
        dimensions[key] = parse_section(Dimension, given, where=where)
    space = Space(dimensions, str(file))
    for key, own in dimensions.items():
        for value in own.extremes():
            _check_value(space, base, key, value)
    return space


def _check_key(key: Any, where: str) -> None:
    if not isinstance(key, str):
        raise ConfigError("a key is text, such as learner.policy.l2", where=where)
    for fixed, reason in _NOT_TUNED.items():
        if key == fixed or key.startswith(f"{fixed}."):
            raise ConfigError(f"{fixed} is not tuned", where=where, remedy=reason)


def _check_value(space: Space, base: Base, key: str, value: Any) -> None:
    """Refuse a value that is invalid both alone and with other values of the space."""
    try:
        base.configure({key: value})
        return
    except RssError as error:
        refused = error
    for attempt in range(_TRIES):
        drawn = space.draw(generator(0, "check", key, attempt))
        try:
            base.configure(drawn | {key: value})
            return
        except RssError:
            continue
    raise ConfigError(
        f"{value!r:.100} cannot be used: {refused.what}",
        where=f"{space.where}: {key}",
        remedy=refused.remedy
        or "`rss-rl config show` documents every key; leave this one out, or change its values",
    )


def draw_settings(space: Space, base: Base, seed: int = 0) -> Iterator[Settings]:
    """The settings of trials 0, 1, ...; trial 0 has none, which is the unchanged base.

    Deterministic for a given space, configuration and seed; ends when the space is exhausted.
    """
    seen = {base.configure({}).model_dump_json()}
    yield {}
    draw = generator(seed, "tune")
    failed = 0
    while failed < _TRIES:
        settings = space.draw(draw)
        failed += 1
        try:
            text = base.configure(settings).model_dump_json()
        except RssError:
            continue
        if text not in seen:
            seen.add(text)
            failed = 0
            yield settings
