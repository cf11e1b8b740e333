"""Reference pages, written by the program: commands, configuration, components, Python."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import rss_rl
from rss_rl.cli.main import COMMANDS
from rss_rl.components import KINDS, built_in_names, describe, described_keys, find_component
from rss_rl.config import RunConfig

CONFIGURATION = """# Configuration

Every key of a configuration, as `rss-rl config show` prints them. On the command line a key is set
by `KEY=VALUE` behind the name of the configuration; `[]` stands for the name of a list's item or
its number, from 0 (`phases.co-train.steps=100`, `phases.0.steps=100`). Options are those of the
component that is used by default; those of the others are under [Components](components.md).
"""

COMPONENTS = """# Components

What is built in, as `rss-rl components KIND NAME` shows it; the same command shows installed
plug-ins. How to write one: [Components: what can be plugged in](../docs/components.md).
"""

API = """# Python

What `import rss_rl` offers, the model that it opens, and the contract tests for components.
"""


def reference_pages() -> dict[str, str]:
    """File names and their Markdown."""
    return {
        "cli.md": "\n".join(_cli()),
        "configuration.md": "\n".join(_configuration()),
        "components.md": "\n".join(_components()),
        "api.md": "\n".join(_api()),
    }


def _cli() -> Iterator[str]:
    """Every command, with the examples that end its help."""
    first, *sections = COMMANDS.generate_docs(max_heading_level=2).split("\n## rss-rl ")
    yield first
    for section in sections:
        command = COMMANDS
        for name in section.partition("\n")[0].split():
            command = command[name]
        yield f"## rss-rl {section}\n{command.help_epilogue or ''}\n"


def _configuration() -> Iterator[str]:
    yield CONFIGURATION
    sections: dict[str, list[dict[str, Any]]] = {}
    for key in described_keys(RunConfig):
        first, dot, _ = key["key"].partition(".")
        sections.setdefault(first if dot else "", []).append(key)
    for section, keys in sections.items():
        yield f"## {section.removesuffix('[]') or 'The run'}\n"
        yield from _table(("key", "type", "default", "meaning"), map(_key, keys))


def _key(key: dict[str, Any]) -> tuple[str, ...]:
    default = "required" if key["required"] else f"`{json.dumps(key['default'])}`"
    bounds = f" ({key['bounds']})" if key["bounds"] else ""
    return f"`{key['key']}`", key["type"] + bounds, default, key["description"]


def _components() -> Iterator[str]:
    yield COMPONENTS
    for kind, spec in KINDS.items():
        yield f"## {spec.plural.replace('_', ' ').capitalize()}\n"
        yield f"Named in `{spec.slot}`.\n"
        for name in built_in_names(kind):
            shown = describe(find_component(kind, name), name)
            source = f" ({shown['source']})" if shown["source"] else ""
            yield f"### {kind.replace('_', ' ')} {name}\n"
            yield f"{shown['help']}{source}\n"
            can = shown["capabilities"].items()
            yield "".join(f"- `{what}`: {meaning}\n" for what, meaning in can)
            yield from _table(("option", "type", "default", "meaning"), map(_key, shown["options"]))


def _api() -> Iterator[str]:
    yield API
    offered = [f"rss_rl.{name}" for name in rss_rl.__all__ if not name.startswith("_")]
    for name in (
        *offered,
        "rss_rl.inference.model.Model",
        "rss_rl.components.Component",
        "rss_rl.testing",
    ):
        yield f"::: {name}\n"


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    lines = [_row(row) for row in rows]
    if lines:
        yield "\n".join([_row(header), _row(["---"] * len(header)), *lines]) + "\n"


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(re.sub(r"\s+", " ", cell).replace("|", "\\|") for cell in cells) + " |"
