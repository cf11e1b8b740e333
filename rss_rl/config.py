"""The configuration of a run: one frozen, strict tree, read from YAML and `key=value` overrides."""

from __future__ import annotations

__all__ = [
    "CheckpointConfig",
    "EvaluationConfig",
    "LearnerConfig",
    "ModelConfig",
    "OptimizerConfig",
    "PhaseConfig",
    "PolicyConfig",
    "RewardConfig",
    "RunConfig",
    "SamplerConfig",
    "load_config",
    "parse_config",
    "parse_section",
]

import functools
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from rss_rl.config_files import parse_value, read_tree
from rss_rl.config_sections import (
    CheckpointConfig,
    EvaluationConfig,
    LearnerConfig,
    ModelConfig,
    OptimizerConfig,
    PhaseConfig,
    PolicyConfig,
    RewardConfig,
    RunConfig,
    SamplerConfig,
)
from rss_rl.config_workers import Section
from rss_rl.errors import ConfigError, nearest

_log = logging.getLogger("rss_rl.config")
_LONGEST_SHOWN = 200
_BIGGEST = 2**63
_S = TypeVar("_S", bound=Section)


def load_config(path: Path, overrides: Sequence[str] = ()) -> RunConfig:
    """Read a YAML configuration and apply `key.subkey=value` overrides (values are YAML).

    A file may begin with `extends: other.yaml`, relative to itself: its sections are merged into
    those of the other file, its lists and values replace them. Settings that the estimator does not
    use are named in a warning of the log.

    Raises:
        ConfigError: naming the file, the key and the nearest known one.
    """
    loaded = read_tree(path)
    for override in overrides:
        _apply(loaded, override)
    config = parse_config(loaded, where=str(path))
    _warn_of_unused(config, path)
    return config


def _warn_of_unused(config: RunConfig, path: Path) -> None:
    """Not refused: one file serves several estimators, and runs that exist must stay readable."""
    unused = config.learner.of_log_probs
    if unused and not config.scores and any(phase.policy for phase in config.phases):
        _warn_once(path, config.estimator, unused)


@functools.cache
def _warn_once(path: Path, estimator: str, unused: tuple[str, ...]) -> None:
    """A table reads one file for each of its runs."""
    what = "no effect with estimator %s, which weighs no log-probs by rewards: %s"
    _log.warning(f"%s: {what}", path, estimator, ", ".join(unused))


def _apply(tree: dict[str, Any], override: str) -> None:
    """Set one `key.subkey=value` in the tree; a number is a place in a list."""
    key, separator, text = override.partition("=")
    if not separator or not key:
        raise ConfigError(
            f"cannot read the override '{override}'",
            remedy="Write key=value, as in learner.policy.l2=0.0",
        )
    value = parse_value(text, where=override)
    *parents, last = key.split(".")
    node: Any = tree
    for part in parents:
        place = _place(node, part, override)
        if isinstance(node, dict) and node.get(place) is None:
            node[place] = {}
        node = node[place]
        if not isinstance(node, dict | list):
            raise ConfigError(f"'{part}' is a value, not a section", where=override)
    node[_place(node, last, override)] = value


def _place(node: dict[str, Any] | list[Any], part: str, override: str) -> Any:
    """What `part` of a dotted key means in a section or list."""
    if isinstance(node, dict):
        return part
    if not part.isdecimal() or len(part) > 9 or int(part) >= len(node):
        raise ConfigError(f"no item {part} in a list of {len(node)}", where=override)
    return int(part)


def parse_config(tree: Mapping[str, Any], *, where: str) -> RunConfig:
    """Validate a configuration tree.

    Raises:
        ConfigError: with the first offending key.
    """
    return parse_section(RunConfig, tree, where=where)


def parse_section(kind: type[_S], tree: Mapping[str, Any], *, where: str) -> _S:
    """Validate a tree as a section of `kind`.

    Raises:
        ConfigError: with the first offending key.
    """
    try:
        return kind.model_validate(_numbers(tree))
    except (RecursionError, OverflowError) as error:  # a tree from a JSON file has any depth
        raise ConfigError(f"too large or too deep: {error}", where=where) from None
    except ValidationError as error:
        # A misspelt key is its own cause: it is said before the key that is missing for it.
        first = min(error.errors(), key=lambda found: found["type"] != "extra_forbidden")
        key = ".".join(str(part) for part in first["loc"])
        hint = ""
        if first["type"] == "extra_forbidden":
            known = _known_keys(kind, first["loc"][:-1])
            wrong = str(first["loc"][-1])[:_LONGEST_SHOWN]
            hint = nearest(wrong, known) or f"; known keys: {', '.join(known)}"
            raise ConfigError(f"unknown key '{key[:_LONGEST_SHOWN]}'{hint}", where=where) from None
        message = first["msg"].removeprefix("Value error, ")
        shown = "" if isinstance(first["input"], dict) else f" (got {_shown(first['input'])})"
        raise ConfigError(f"{key or 'configuration'}: {message}{shown}", where=where) from None


def _shown(value: Any) -> str:
    """A wrong value, as far as it fits into a message."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # a number with more digits than Python prints
        text = f"a {type(value).__name__}"
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}..."


def _numbers(node: Any) -> Any:
    """YAML reads 1e-3 as text (it wants 1.0e-3): take such text as the number it plainly is."""
    if isinstance(node, Mapping):
        return {key: _numbers(value) for key, value in node.items()}
    if isinstance(node, list | tuple):
        return tuple(_numbers(value) for value in node)
    if isinstance(node, int) and abs(node) >= _BIGGEST:
        raise OverflowError(f"a number of {node.bit_length()} bits")
    if isinstance(node, str) and node[:1] in "+-.0123456789" and "e" in node.lower():
        try:
            return float(node)
        except ValueError:
            return node
    return node


def _known_keys(kind: type[Section], location: tuple[int | str, ...]) -> list[str]:
    section: Any = kind
    for part in location:
        if part not in section.model_fields:  # a place in a list, or the name of an item
            continue
        annotation = section.model_fields[part].annotation
        section = next(
            (a for a in getattr(annotation, "__args__", ()) if hasattr(a, "model_fields")),
            annotation,
        )
    return list(section.model_fields)
