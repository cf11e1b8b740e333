"""YAML configuration files, possibly hostile, as trees of bounded size and depth.

A file may begin with `extends: other.yaml`, relative to itself. Aliases (`*name`) count as what
they expand to: a few lines of them can expand to more values than fit into memory.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from rss_rl.durable import plain_bytes
from rss_rl.errors import ConfigError

_MOST_BYTES = 2**20
_LONGEST_CHAIN = 16
_LONGEST_NAME = 1000
_DEEPEST = 32
_MOST_VALUES = 100_000


def read_tree(path: Path) -> dict[str, Any]:
    """The tree of a file and of those it extends.

    Raises:
        ConfigError: it cannot be read, is too large or too deep, or is not a mapping.
    """
    return _read(path, ())


def _read(path: Path, readers: tuple[Path, ...]) -> dict[str, Any]:
    """`readers` are the files that extend this one."""
    try:
        path = path.resolve() if readers else path
        if path in readers:
            raise ConfigError("extends itself", where=str(path))
        if len(readers) > _LONGEST_CHAIN:
            raise ConfigError(f"more than {_LONGEST_CHAIN} files in a chain", where=str(path))
        text = plain_bytes(path, _MOST_BYTES).decode()
        resolved = path.resolve()
    except (OSError, ValueError, RuntimeError) as error:  # also: cyclic links, a NUL, not UTF-8
        raise ConfigError(
            f"cannot read the configuration: {getattr(error, 'strerror', None) or error}",
            where=str(path),
            remedy="`rss-rl config list` names those that are shipped",
        ) from error
    loaded = parse_value(text, where=str(path), what="the file")
    if not isinstance(loaded, dict):
        raise ConfigError("a configuration is a mapping of keys to values", where=str(path))
    base = loaded.pop("extends", None)
    if base is None:
        return loaded
    named = isinstance(base, str) and len(base) < _LONGEST_NAME
    if not named or Path(base).suffix not in (".yaml", ".yml"):
        raise ConfigError(f"extends: names no YAML file (got {base!r:.200})", where=str(path))
    return _merged(_read(path.parent / base, (*readers, resolved)), loaded)


def _merged(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """`base` with the values of `over`; sections that both have are merged.

    Options belong to the component that is named, so another name does not inherit them.
    """
    if "name" in over and over["name"] != base.get("name"):
        base = {key: value for key, value in base.items() if key != "options"}
    # `SLOT: NAME` is short for a component of that name without options.
    named = {
        key: {"name": base[key]}
        for key, value in over.items()
        if isinstance(value, dict) and "options" in value and isinstance(base.get(key), str)
    }
    base = base | named
    both = {
        key: _merged(base[key], value)
        for key, value in over.items()
        if isinstance(value, dict) and isinstance(base.get(key), dict)
    }
    return base | over | both


def parse_value(text: str, *, where: str, what: str = "the value") -> Any:
    """The value of a YAML text, which messages call `what`.

    Raises:
        ConfigError: invalid YAML, a duplicate key, or too many or too deeply nested values.
    """
    try:
        return yaml.load(text, _Loader)
    except yaml.YAMLError as error:
        raise ConfigError(f"{what} is not valid YAML: {error}", where=where) from error
    except (ValueError, OverflowError, RecursionError) as error:
        # Numbers and dates that Python cannot hold.
        raise ConfigError(f"{what} is not usable: {error}", where=where) from error


def yaml_text(tree: Any) -> str:
    """Plain values as YAML that `parse_value` reads back exactly, keys in their order."""
    text: str = yaml.dump(tree, Dumper=_Dumper, sort_keys=False)
    return text


def flow_text(value: Any) -> str:
    """A plain value on one line of YAML that `parse_value` reads back exactly."""
    text: str = yaml.dump(
        value, Dumper=_Dumper, sort_keys=False, default_flow_style=True, width=sys.maxsize
    )
    return text.removesuffix("\n").removesuffix("\n...")


def settings(overrides: Sequence[str] | Mapping[str, Any]) -> list[str]:
    """Overrides as `key=value` strings."""
    if isinstance(overrides, Mapping):
        return [setting(key, value) for key, value in overrides.items()]
    return list(overrides)


def setting(key: str, value: Any) -> str:
    """`key=value`, which `with_overrides` reads back exactly.

    Raises:
        ConfigError: the value is not plain.
    """
    try:
        return f"{key}={flow_text(os.fspath(value) if isinstance(value, os.PathLike) else value)}"
    except yaml.YAMLError:
        raise ConfigError(
            f"{key}: a value cannot be of type {type(value).__name__}",
            remedy="Give texts, numbers, booleans, None, and lists and mappings of these",
        ) from None


class _Loader(yaml.SafeLoader):
    """Plain values only; duplicate keys are an error."""

    def __init__(self, stream: str) -> None:
        super().__init__(stream)
        # Number of values that each finished node expands to, and their depth.
        self._extent: dict[yaml.Node, tuple[int, int]] = {}

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        node = super().compose_node(parent, index)
        if node is not None and node not in self._extent:
            self._extent[node] = self._measure(node)
        return node

    def _measure(self, node: yaml.Node) -> tuple[int, int]:
        if isinstance(node, yaml.ScalarNode):
            return 1, 1
        pairs = isinstance(node, yaml.MappingNode)
        parts = [part for pair in node.value for part in pair] if pairs else node.value
        # An alias to an unfinished node is recursive: it expands without end.
        extents = [self._extent.get(part, (_MOST_VALUES, 0)) for part in parts]
        values = 1 + sum(count for count, _ in extents)
        depth = 1 + max((deep for _, deep in extents), default=0)
        if values > _MOST_VALUES or depth > _DEEPEST:
            raise yaml.MarkedYAMLError(
                problem=f"expands to over {_MOST_VALUES} values, or over {_DEEPEST} levels",
                problem_mark=node.start_mark,
            )
        return values, depth

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                continue
            if key.value in seen:
                raise yaml.MarkedYAMLError(
                    problem=f"key '{key.value:.100}' is given twice", problem_mark=node.start_mark
                )
            seen.add(key.value)
        return super().construct_mapping(node, deep=deep)


class _Dumper(yaml.SafeDumper):
    """Quotes what `_Loader` would not read as a text."""


for _side in (_Loader, _Dumper):  # 1e-3 is a number, as in YAML 1.2 and everywhere else
    _side.add_implicit_resolver(
        "tag:yaml.org,2002:float",
        re.compile(r"[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d+$"),
        list("-+.0123456789"),
    )


def flat_settings(node: Any, prefix: str = "") -> list[tuple[str, Any]]:
    """Dotted keys of a configuration and their values; list items by index."""
    if isinstance(node, Mapping) and node:
        items = [(str(key), value) for key, value in node.items()]
    elif isinstance(node, list) and any(isinstance(item, Mapping) for item in node):
        items = [(str(index), value) for index, value in enumerate(node)]
    else:
        return [(prefix, node)]
    return [
        pair
        for key, value in items
        for pair in flat_settings(value, f"{prefix}.{key}" if prefix else key)
    ]
