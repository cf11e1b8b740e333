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
]

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

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
from rss_rl.errors import ConfigError, nearest


def load_config(path: Path, overrides: Sequence[str] = ()) -> RunConfig:
    """Read a YAML configuration and apply `key.subkey=value` overrides (values are YAML).

    A file may begin with `extends: other.yaml`, relative to itself: its sections are merged into
    those of the other file, its lists and values replace them.

    Raises:
        ConfigError: naming the file, the key and the nearest known one.
    """
    loaded = _read(path, ())
    for override in overrides:
        _apply(loaded, override)
    return parse_config(loaded, where=str(path))


def _read(path: Path, readers: tuple[Path, ...]) -> dict[str, Any]:
    """The tree of a file and of those it extends; `readers` are the files that extend it."""
    path = path.resolve() if readers else path
    if path in readers:
        raise ConfigError("extends itself", where=str(path))
    try:
        loaded = yaml.load(path.read_text(encoding="utf-8"), _UniqueKeys)
    except OSError as error:
        raise ConfigError(
            f"cannot read the configuration: {error.strerror}",
            where=str(path),
            remedy="`rss-rl config list` names those that are shipped",
        ) from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"not valid YAML: {error}", where=str(path)) from error
    if not isinstance(loaded, dict):
        raise ConfigError("a configuration is a mapping of keys to values", where=str(path))
    base = loaded.pop("extends", None)
    if base is None:
        return loaded
    return _merged(_read(path.parent / str(base), (*readers, path.resolve())), loaded)


def _merged(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """`base` with the values of `over`; sections that both have are merged."""
    both = {
        key: _merged(base[key], value)
        for key, value in over.items()
        if isinstance(value, dict) and isinstance(base.get(key), dict)
    }
    return base | over | both


class _UniqueKeys(yaml.SafeLoader):
    """A YAML loader that does not let the second of two equal keys win in silence."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        for key in keys:
            if keys.count(key) > 1:
                raise yaml.MarkedYAMLError(
                    problem=f"key '{key}' is given twice", problem_mark=node.start_mark
                )
        return super().construct_mapping(node, deep=deep)


def _apply(tree: dict[str, Any], override: str) -> None:
    """Set one `key.subkey=value` in the tree; a number is a place in a list."""
    key, separator, text = override.partition("=")
    if not separator or not key:
        raise ConfigError(
            f"cannot read the override '{override}'",
            remedy="Write key=value, as in learner.policy.l2=0.0",
        )
    try:
        value = yaml.load(text, _UniqueKeys)
    except yaml.YAMLError as error:
        raise ConfigError(f"the value is not valid YAML: {error}", where=override) from error
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
    if not part.isdecimal() or int(part) >= len(node):
        raise ConfigError(f"no item {part} in a list of {len(node)}", where=override)
    return int(part)


def parse_config(tree: Mapping[str, Any], *, where: str) -> RunConfig:
    """Validate a configuration tree.

    Raises:
        ConfigError: with the first offending key.
    """
    try:
        return RunConfig.model_validate(_numbers(tree))
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"])
        hint = ""
        if first["type"] == "extra_forbidden":
            known = _known_keys(first["loc"][:-1])
            hint = nearest(str(first["loc"][-1]), known) or f"; known keys: {', '.join(known)}"
            raise ConfigError(f"unknown key '{key}'{hint}", where=where) from None
        message = first["msg"].removeprefix("Value error, ")
        shown = f" (got {first['input']!r})" if not isinstance(first["input"], dict) else ""
        raise ConfigError(f"{key or 'configuration'}: {message}{shown}", where=where) from None


def _numbers(node: Any) -> Any:
    """YAML reads 1e-3 as text (it wants 1.0e-3): take such text as the number it plainly is."""
    if isinstance(node, Mapping):
        return {key: _numbers(value) for key, value in node.items()}
    if isinstance(node, list | tuple):
        return tuple(_numbers(value) for value in node)
    if isinstance(node, str) and node[:1] in "+-.0123456789" and "e" in node.lower():
        try:
            return float(node)
        except ValueError:
            return node
    return node


def _known_keys(location: tuple[int | str, ...]) -> list[str]:
    section: Any = RunConfig
    for part in location:
        if isinstance(part, int):
            continue
        annotation = section.model_fields[part].annotation
        section = next(
            (a for a in getattr(annotation, "__args__", ()) if hasattr(a, "model_fields")),
            annotation,
        )
    return list(section.model_fields)
