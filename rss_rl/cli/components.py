"""`rss-rl components`: the available components and their capabilities."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any

from rss_rl.api.terminal import plain_table
from rss_rl.cli.show import Json, console, echo, echo_json

if TYPE_CHECKING:
    from rss_rl.components import Kind


def components(kind: str | None = None, name: str | None = None, *, json_: Json = False) -> None:
    """Show the components that a run can use, built in or from an installed package.

    Args:
        kind: policies, estimators, encoders, sources, ...
        name: A component, or package.module:OBJECT.

    Examples:
        `rss-rl components` shows the kinds.

        `rss-rl components policies` shows all installed policies, plug-ins included.

        `rss-rl components policies rss` shows one policy with its options.

        `rss-rl components encoders my_package.my_module:ENCODER` shows one that is not installed.
    """
    from rss_rl.cli.config import documented_yaml
    from rss_rl.components import KINDS, component_names, describe, find_component, kind_named
    from rss_rl.config import yaml_text

    if kind is not None and name is not None:
        component = find_component(kind_named(kind), name)
        shown = describe(component, name)
        if json_:
            echo_json(shown)
            return
        del shown["options"]
        for key, value in shown.items():
            if value:
                text = f"\n{yaml_text(value).rstrip()}" if isinstance(value, dict) else str(value)
                echo(f"{key}: " + text.replace("\n", "\n  "))
        if component.options.model_fields:
            options = documented_yaml(component.options.model_construct())
            echo("options:\n" + textwrap.indent(options.rstrip(), "  "))
        return
    rows = [
        {"kind": spec.plural, "installed": len(component_names(known)), "named in": spec.slot}
        for known, spec in KINDS.items()
    ]
    rows = rows if kind is None else _all(kind_named(kind))
    if json_:
        echo_json(rows)
    else:
        _print_rows(rows)


def _all(kind: Kind) -> list[dict[str, Any]]:
    from rss_rl.components import component_names, find_component, package_of
    from rss_rl.errors import ConfigError

    rows = []
    for name in component_names(kind):
        try:
            found = find_component(kind, name)
            can = ", ".join(sorted(found.all_capabilities(found.options.model_construct())))
            row = {"name": name, "help": found.help, "can": can, "source": found.source}
        except ConfigError as error:
            row = {"name": name, "help": f"cannot be used: {error}", "can": "", "source": ""}
        rows.append(row | {"package": package_of(kind, name)})
    return rows


def _print_rows(rows: list[dict[str, Any]]) -> None:
    if not rows:
        return
    table = plain_table(list(rows[0]), (list(map(str, row.values())) for row in rows))
    for column in table.columns:
        column.no_wrap = column.header in ("name", "kind")
    console().print(table)
