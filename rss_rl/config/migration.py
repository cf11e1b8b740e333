"""Configurations of earlier versions in the present form.

Until b9a4141 the options of all components lay side by side in the sections `model`, `policy` and
`learner`. They are moved to the component that has them, which says where they were
(`Component.was`); those of components that were not chosen had no effect and are dropped.
"""

from __future__ import annotations

__all__ = ["SLOTS", "Slot", "migrate"]

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rss_rl.components import DEFAULTS, Component, Kind, Trust, find_component
from rss_rl.errors import ConfigError

_log = logging.getLogger("rss_rl.config")


@dataclass(frozen=True)
class Slot:
    """Where a configuration names a component.

    path     of keys to the slot
    section  whose keys its options once were
    """

    kind: Kind
    path: tuple[str, ...]
    section: str

    def chosen(self, tree: Mapping[str, Any]) -> dict[str, Any]:
        """What stands in the slot, as a mapping; empty where nothing does."""
        node: Any = tree
        for key in self.path:
            node = node.get(key) if isinstance(node, Mapping) else None
        if isinstance(node, str):
            return {"name": node}
        return dict(node) if isinstance(node, Mapping) else {}

    def component(self, tree: Mapping[str, Any], trust: Trust) -> Component | None:
        """What fills the slot; None where nothing does, or what cannot be used: validation will
        say why."""
        name = self.chosen(tree).get("name", DEFAULTS.get(self.kind))
        try:
            return find_component(self.kind, name, trust) if isinstance(name, str) else None
        except ConfigError:
            return None


SLOTS: tuple[Slot, ...] = (Slot("reward_model", ("reward", "model"), "reward"),)

_RETIRED: Mapping[str, frozenset[str]] = {}
"""Keys of sections that b9a4141 had and this version has not."""


def migrate(tree: Mapping[str, Any], *, where: str, trust: Trust) -> dict[str, Any]:
    """The tree in the present form; itself where it is in that form already."""
    old = {
        f"{section}.{key}": tree[section][key]
        for section, keys in _RETIRED.items()
        if isinstance(tree.get(section), Mapping)
        for key in keys & set(tree[section])
    }
    if not old:
        return dict(tree)
    moved: list[str] = []
    new = dict(tree)
    for section in {key.partition(".")[0] for key in old}:
        kept = tree[section].items()
        new[section] = {k: v for k, v in kept if k not in _RETIRED[section]}
    for slot in SLOTS:
        component = slot.component(new, trust)
        if component is None:
            continue
        was = component.was or {}
        places = {name: was.get(name, f"{slot.section}.{name}") for name in _names(component)}
        found = {name: old[place] for name, place in places.items() if place in old}
        if found:
            chosen = {"name": component.name} | slot.chosen(new)
            chosen["options"] = {**(chosen.get("options") or {}), **found}
            new = _with(new, slot.path, chosen)
            moved += [f"{places[name]} -> {'.'.join(slot.path)}.options.{name}" for name in found]
    _log.info("%s: keys of an earlier version were read as %s", where, "; ".join(moved) or "unset")
    return new


def _names(component: Component) -> list[str]:
    return list(component.options.model_fields)


def _with(tree: Mapping[str, Any], path: tuple[str, ...], value: Any) -> dict[str, Any]:
    """The tree with another value at a path."""
    key, rest = path[0], path[1:]
    below = tree.get(key)
    inner = below if isinstance(below, Mapping) else {}
    return {**tree, key: _with(inner, rest, value) if rest else value}
