"""`rss-rl components`: the available components and their capabilities."""

from __future__ import annotations

import json
import sys
import textwrap
from typing import Any

import yaml

from rss_rl.api.terminal import plain_table, say
from rss_rl.cli.show import Json, console, echo_json


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
    tree = _kinds() if kind is None else _all(kind) if name is None else _one(kind, name)
    if json_:
        echo_json(tree)
    elif isinstance(tree, list):
        _print_rows(tree)
    else:
        _print_one(tree)


def _kinds() -> list[dict[str, Any]]:
    from rss_rl.components import KINDS, component_names

    return [
        {"kind": spec.plural, "installed": len(component_names(kind)), "named in": spec.slot}
        for kind, spec in KINDS.items()
    ]


def _all(plural: str) -> list[dict[str, Any]]:
    from rss_rl.components import Component, installed_components, kind_named, package_of

    kind = kind_named(plural)
    rows = []
    for name, found in installed_components(kind).items():
        row = {"name": name, "help": f"cannot be used: {found}", "can": "", "source": ""}
        if isinstance(found, Component):
            can = ", ".join(sorted(found.all_capabilities(found.options.model_construct())))
            row |= {"help": found.help, "can": can, "source": found.source}
        rows.append(row | {"package": package_of(kind, name)})
    return rows


def _one(plural: str, name: str) -> dict[str, Any]:
    from rss_rl.components import describe, find_component, kind_named

    kind = kind_named(plural)
    return describe(find_component(kind, name), name)


def _print_rows(rows: list[dict[str, Any]]) -> None:
    header = list(rows[0]) if rows else []
    table = plain_table(header, (list(map(str, row.values())) for row in rows))
    for column in table.columns:
        column.no_wrap = column.header in ("name", "kind")
    console().print(table)


def _print_one(shown: dict[str, Any]) -> None:
    out = console()
    say(out, f"{shown['name']}  {shown['help']}")
    facts = {"Source": shown["source"], "Package": shown["package"], "Reads": shown.get("needs")}
    lines = [f"{name}: {value}" for name, value in facts.items() if value]
    lines += [f"  {name}: {meaning}" for name, meaning in shown["capabilities"].items()]
    if shown["by_options"]:
        lines.append("  (with its default options; others change its capabilities)")
    lines += ["\nUsage:", textwrap.indent(_yaml(shown["short"]), "  ")]
    if shown["options"]:
        lines += ["\nWith options:", textwrap.indent(_yaml(shown["example"]), "  "), ""]
    else:
        lines.append("\nIt has no options.")
    for line in lines:
        say(out, line)
    if not shown["options"]:
        return
    _print_rows(
        [
            {
                "option": option["name"],
                "type": option["type"],
                "default": "required" if option["required"] else json.dumps(option["default"]),
                "bounds": option["bounds"],
                "meaning": option["description"],
            }
            for option in shown["options"]
        ]
    )


def _yaml(tree: Any) -> str:
    """A configuration as YAML; a command unchanged."""
    if isinstance(tree, str):
        return tree
    text: str = yaml.safe_dump(tree, default_flow_style=None, sort_keys=False, width=sys.maxsize)
    return text.rstrip("\n")
