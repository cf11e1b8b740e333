"""`rss-rl components`: the available components and their capabilities."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from rss_rl.api.terminal import plain_table
from rss_rl.cli.show import console, echo

if TYPE_CHECKING:
    from rss_rl.components import Kind


def components(kind: str | None = None, name: str | None = None) -> None:
    """Show the components that a run can use, built in or from an installed package.

    Args:
        kind: policies, policy updates, encoders, sources, ...
        name: A component, or package.module:OBJECT.

    Examples:
        `rss-rl components` shows the kinds.

        `rss-rl components policies` shows all installed policies, plug-ins included.

        `rss-rl components policies rss` shows one policy with its options.

        `rss-rl components encoders my_package.my_module:ENCODER` shows one that is not installed.
    """
    from rss_rl.components import KINDS, component_names, kind_named

    if kind is None:
        header = ["kind", "installed", "named in"]
        body = [
            [spec.plural, str(len(component_names(known))), spec.slot]
            for known, spec in KINDS.items()
        ]
    elif name is None:
        header = ["name", "help", "can", "source", "package"]
        body = _all(kind_named(kind))
    else:
        _show_one(kind_named(kind), name)
        return
    table = plain_table(header, body)
    table.columns[0].no_wrap = True
    console().print(table)


def _show_one(kind: Kind, name: str) -> None:
    from rss_rl.cli.config import documented_yaml
    from rss_rl.components import describe, find_component
    from rss_rl.config import yaml_text

    component = find_component(kind, name)
    for key, value in describe(component, name).items():
        if key == "options" or not value:
            continue
        text = f"\n{yaml_text(value).rstrip()}" if isinstance(value, dict) else str(value)
        echo(f"{key}: " + text.replace("\n", "\n  "))
    if component.options.model_fields:
        options = documented_yaml(component.options.model_construct())
        echo("options:\n" + textwrap.indent(options.rstrip(), "  "))


def _all(kind: Kind) -> list[list[str]]:
    from rss_rl.components import component_names, find_component, package_of
    from rss_rl.errors import ConfigError

    rows = []
    for name in component_names(kind):
        try:
            found = find_component(kind, name)
            can = ", ".join(sorted(found.all_capabilities(found.options.model_construct())))
            row = [name, found.help, can, found.source]
        except ConfigError as error:
            row = [name, f"cannot be used: {error}", "", ""]
        rows.append([*row, package_of(kind, name)])
    return rows
