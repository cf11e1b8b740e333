"""`rss-rl config`: show configurations as documented YAML, and list the shipped ones."""

from __future__ import annotations

__all__ = ["app", "documented_yaml", "every_key"]

import textwrap
from collections.abc import Iterator
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import to_jsonable_python

from rss_rl.api.options import Overrides
from rss_rl.api.terminal import plain_table
from rss_rl.cli.commands import add, group
from rss_rl.cli.show import console, echo
from rss_rl.config import (
    Choice,
    PhaseConfig,
    RunConfig,
    flat_settings,
    flow_text,
    load_config,
    settings,
)
from rss_rl.packaged import configs_root, find_config, packaged_configs

app = group("config", "Show configurations, with what each key means; list the shipped ones.")
_WIDTH = 96


def show(config: str | None = None, overrides: Overrides = ()) -> None:
    """Show a configuration as it would run: the file, the overrides and all defaults, as YAML.

    Args:
        config: A YAML file, or a name that `rss-rl config list` shows. Default: all keys.
        overrides: Settings that differ from the file: `learner.policy.l2=1e-4`.

    Examples:
        `rss-rl config show` documents every key with its default.

        `rss-rl config show sick reward.sparsity_cost=0.05` shows what `rss-rl train` would run.

        `rss-rl config show sick > mine.yaml` starts a configuration of your own.
    """
    named = None if config is None else find_config(config)
    shown = every_key() if named is None else load_config(named, settings(overrides))
    echo(documented_yaml(shown).rstrip("\n"))


def list_() -> None:
    """List the configurations that come with the package.

    Examples:
        `rss-rl config list`
    """
    for name in packaged_configs():
        first = (configs_root() / f"{name}.yaml").read_text(encoding="utf-8").splitlines()[0]
        echo(f"{name:24} {first.lstrip('# ')}")


def diff(first: str, second: str) -> None:
    """Show the settings in which two configurations or runs differ.

    Args:
        first: A YAML file, a name that `rss-rl config list` shows, or the directory of a run.
        second: The other.

    Examples:
        `rss-rl config diff own own_long`

        `rss-rl config diff runs/reviews runs/reviews-300`
    """
    from rss_rl.results.sweeps.plan import find_base

    trees = []
    for name in (first, second):
        base = find_base(name)
        config = load_config(base.file, trust=base.trust).model_dump(mode="json")
        trees.append(dict(flat_settings(config)))
    cells = []
    for key in trees[0] | trees[1]:
        shown = [flow_text(tree[key]) if tree.get(key, {}) != {} else "-" for tree in trees]
        if shown[0] != shown[1]:
            cells.append([key, *shown])
    console().print(plain_table(["setting", first, second], cells))


add(app, show)
add(app, list_)
add(app, diff)


def every_key() -> RunConfig:
    """A configuration that has all keys, with their defaults."""
    phase = PhaseConfig(name="warm-up", supervised=True, selection="all", steps=1000)
    return RunConfig(data="DIRECTORY", phases=(phase,))


def documented_yaml(section: BaseModel) -> str:
    """YAML that loads as `section`, with each key's description as a comment."""
    return "".join(f"{line}\n" for line in _section(section, 0))


def _section(section: BaseModel, depth: int) -> Iterator[str]:
    indent = "  " * depth
    for name, field in type(section).model_fields.items():
        value = getattr(section, name, None)  # unchecked options may lack a required one
        if isinstance(section, Choice) and name == "options":
            value = section.component.parse(section.options)
        for line in textwrap.wrap(_comment(field, value), _WIDTH - 2 * depth):
            yield f"{indent}# {line}"
        if isinstance(value, BaseModel) and not type(value).model_fields:
            yield f"{indent}{name}: {{}}"
        elif isinstance(value, BaseModel):
            yield f"{indent}{name}:"
            yield from _section(value, depth + 1)
        elif isinstance(value, tuple) and value and isinstance(value[0], BaseModel):
            yield f"{indent}{name}:"
            for number, item in enumerate(value):
                yield from _item(item, depth + 1, commented=number == 0)
        else:
            yield f"{indent}{name}: {flow_text(value)}"


def _item(section: BaseModel, depth: int, *, commented: bool) -> Iterator[str]:
    """One item of a list; only the first item is commented."""
    lines = [line for line in _section(section, depth + 1) if commented or not _is_comment(line)]
    first = next(n for n, line in enumerate(lines) if not _is_comment(line))
    indent = "  " * depth
    for number, line in enumerate(lines):
        yield f"{indent}- {line.lstrip()}" if number == first else line


def _is_comment(line: str) -> bool:
    return line.lstrip().startswith("#")


def _comment(field: FieldInfo, value: Any) -> str:
    parts = [field.description] if field.description else []
    if value is None and field.is_required():
        parts.append("Required.")
    if choices := _choices(field.annotation):
        parts.append(f"One of: {', '.join(choices)}.")
    default = field.get_default(call_default_factory=True, validated_data={})
    if not (field.is_required() or value == default or isinstance(value, BaseModel)):
        parts.append(f"Default: {flow_text(to_jsonable_python(default))}.")
    return " ".join(parts)


def _choices(annotation: Any) -> list[str]:
    origin = get_origin(annotation)
    if origin is Literal:
        return [str(choice) for choice in get_args(annotation)]
    if origin in (Union, UnionType):
        return [choice for part in get_args(annotation) for choice in _choices(part)]
    return []
