"""Migration of configurations of earlier versions.

Until b9a4141 the options of all components were keys of the sections `model`, `policy` and
`learner`. They are moved to their component, which names the old keys (`Component.was`); those of
components that were not chosen had no effect and are dropped.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rss_rl.components import (
    DEFAULTS,
    Component,
    Kind,
    Trust,
    built_in_names,
    default_estimator,
    find_component,
)
from rss_rl.errors import ConfigError

_log = logging.getLogger("rss_rl.config")


@dataclass(frozen=True)
class Slot:
    """Where a configuration names a component.

    path     keys that lead to the slot
    section  that held its options in earlier versions
    """

    kind: Kind
    path: tuple[str, ...]
    section: str

    def chosen(self, tree: Mapping[str, Any]) -> dict[str, Any]:
        """The value of the slot as a mapping; empty if it is unset."""
        node: Any = tree
        for key in self.path:
            node = node.get(key) if isinstance(node, Mapping) else None
        if isinstance(node, str):
            return {"name": node}
        return dict(node) if isinstance(node, Mapping) else {}

    def component(self, tree: Mapping[str, Any], trust: Trust) -> Component | None:
        """The component in the slot; None if there is none or, as validation will report, it
        cannot be used."""
        name = self.chosen(tree).get("name")
        try:
            if name is None:
                name = self._default(tree, trust)
            return find_component(self.kind, name, trust) if isinstance(name, str) else None
        except ConfigError:
            return None

    def _default(self, tree: Mapping[str, Any], trust: Trust) -> str | None:
        """The name that is used if the slot is unset."""
        if self.kind != "estimator":
            return DEFAULTS.get(self.kind)
        policy = _POLICY.component(tree, trust)
        if policy is None:
            return None
        options = policy.parse(_POLICY.chosen(tree).get("options") or {})
        return default_estimator(policy.all_capabilities(options))


_POLICY = Slot("policy", ("policy",), "policy")
SLOTS: tuple[Slot, ...] = (
    _POLICY,
    Slot("estimator", ("learner", "estimator"), "learner"),
    Slot("encoder", ("model", "encoder"), "model"),
    Slot("classifier", ("model", "classifier"), "model"),
    Slot("reward_model", ("reward", "model"), "reward"),
)
"""A slot comes after those that its default depends on."""

_RETIRED: Mapping[str, frozenset[str]] = {
    "policy": frozenset({"hidden", "shared", "context", "cell", "initial_probability"}),
    "learner": frozenset({
        "baseline", "baseline_momentum", "correction", "ratio_max", "ratio_clip",
    }),
    "model": frozenset({
        "attention_error", "attention_heads", "block_global", "block_length", "block_local",
        "cloze_entities", "cloze_output", "cnn_filters", "cnn_layers", "cnn_window", "cnn_windows",
        "highway", "keep_unselected", "reader", "reader_hidden", "score_bins", "score_loss",
        "sentence_block_length", "unselected_context",
    }),
}  # fmt: skip
"""Keys of sections in b9a4141 that this version lacks."""


def migrate(tree: Mapping[str, Any], *, where: str, trust: Trust) -> dict[str, Any]:
    """The tree in the current form."""
    old = {
        f"{section}.{key}": tree[section][key]
        for section, keys in _RETIRED.items()
        if isinstance(tree.get(section), Mapping)
        for key in keys & set(tree[section])
    }
    if not old:
        return dict(tree)
    moved: dict[str, str] = {}
    new = dict(tree)
    for section in {key.partition(".")[0] for key in old}:
        kept = tree[section].items()
        new[section] = {k: v for k, v in kept if k not in _RETIRED[section]}
    for slot in SLOTS:
        component = slot.component(new, trust) or _asked_for(slot, new, old)
        if component is None:
            continue
        keys = _old_keys(slot, component)
        found = {name: old[key] for name, key in keys.items() if key in old}
        if found:
            chosen = {"name": component.name} | slot.chosen(new)
            chosen["options"] = {**(chosen.get("options") or {}), **found}
            new = _with(new, slot.path, chosen)
            moved |= {keys[name]: f"{'.'.join(slot.path)}.options.{name}" for name in found}
    _say(where, len(moved), len(old) - len(moved))
    said = [f"{key} -> {moved.get(key, 'nothing, as it had no effect')}" for key in sorted(old)]
    _log.debug("%s: %s", where, "; ".join(said))
    return new


@functools.cache
def _say(where: str, moved: int, unused: int) -> None:
    """Log once per process: a run's configuration is read several times."""
    what = "of an earlier version; keys read as options of components: %d, without effect: %d"
    _log.warning("%s: " + what, where, moved, unused)


def _old_keys(slot: Slot, component: Component) -> dict[str, str]:
    """The old key of each option of a component, by its current name."""
    was = component.was or {}
    names = component.options.model_fields
    return {name: was.get(name, f"{slot.section}.{name}") for name in names}


def _asked_for(slot: Slot, tree: Mapping[str, Any], old: Mapping[str, Any]) -> Component | None:
    """For an unset slot, the built-in component that has old options other than their defaults.

    Resolved configurations had the options of all components, so defaults leave the slot unset.
    """
    if slot.chosen(tree):
        return None
    for component in (find_component(slot.kind, name) for name in built_in_names(slot.kind)):
        defaults = component.parse({}).model_dump(mode="json")
        keys = _old_keys(slot, component)
        if any(key in old and old[key] != defaults[name] for name, key in keys.items()):
            return component
    return None


def _with(tree: Mapping[str, Any], path: tuple[str, ...], value: Any) -> dict[str, Any]:
    """The tree with another value at a path."""
    key, rest = path[0], path[1:]
    below = tree.get(key)
    inner = below if isinstance(below, Mapping) else {}
    return {**tree, key: _with(inner, rest, value) if rest else value}
