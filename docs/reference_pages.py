"""Reference pages, written by the program: commands, configuration, components, Python."""

from __future__ import annotations

from collections.abc import Iterator
from inspect import Parameter, getdoc, isfunction, signature

from pydantic import BaseModel

import rss_rl
from rss_rl.cli.config import documented_yaml, every_key
from rss_rl.cli.main import COMMANDS
from rss_rl.components import KINDS, built_in_names, describe, find_component

CONFIGURATION = """# Configuration

Every key of a configuration, as `rss-rl config show` prints them. On the command line a key is set
by `KEY=VALUE` behind the name of the configuration, an item of a list by its name or its number,
from 0 (`phases.co-train.steps=100`, `phases.0.steps=100`). Options are those of the
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
    yield _yaml(every_key())


def _components() -> Iterator[str]:
    yield COMPONENTS
    for kind, spec in KINDS.items():
        yield f"## {spec.plural.replace('_', ' ').capitalize()}\n"
        yield f"Named in `{spec.slot}`.\n"
        for name in built_in_names(kind):
            component = find_component(kind, name)
            shown = describe(component, name)
            source = f" ({shown['source']})" if shown["source"] else ""
            yield f"### {kind.replace('_', ' ')} {name}\n"
            yield f"{shown['help']}{source}\n"
            can = shown["capabilities"].items()
            yield "".join(f"- `{what}`: {meaning}\n" for what, meaning in can)
            if component.options.model_fields:
                yield _yaml(component.options.model_construct())


def _api() -> Iterator[str]:
    yield API
    for name in (name for name in rss_rl.__all__ if isfunction(getattr(rss_rl, name))):
        yield from _function(name)
    for name in (
        "rss_rl.Run",
        "rss_rl.inference.model.Model",
        "rss_rl.components.Component",
        "rss_rl.testing",
    ):
        yield f"::: {name}\n"


def _function(name: str) -> Iterator[str]:
    """A function as `help` shows it, an argument a line."""
    shown = signature(getattr(rss_rl, name))
    parts = [str(parameter) for parameter in shown.parameters.values()]
    kinds = [parameter.kind for parameter in shown.parameters.values()]
    if Parameter.KEYWORD_ONLY in kinds:
        parts.insert(kinds.index(Parameter.KEYWORD_ONLY), "*")
    lines = "".join(f"    {part},\n" for part in parts)
    yield f"## {name} {{ #rss_rl.{name} }}\n"
    yield f"```python\nrss_rl.{name}(\n{lines})\n```\n"
    yield f"```text\n{getdoc(getattr(rss_rl, name))}\n```\n"


def _yaml(section: BaseModel) -> str:
    return f"```yaml\n{documented_yaml(section)}```\n"
