"""Loading and validating configurations from YAML and `key=value` overrides."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from rss_rl.components import (
    EVERYTHING,
    NOTHING,
    Kind,
    Trust,
    bounded,
    find_component,
    first_mistake,
)
from rss_rl.config.choice import Section, with_folders
from rss_rl.config.sections import RunConfig
from rss_rl.config.yaml_files import parse_value, read_tree
from rss_rl.errors import ConfigError, nearest
from rss_rl.storage import is_uri

_LONGEST_SHOWN = 200
_SLOTS: Mapping[tuple[str, ...], Kind] = {
    ("policy",): "policy",
    ("learner", "policy_update"): "policy_update",
    ("model", "encoder"): "encoder",
    ("model", "classifier"): "classifier",
    ("reward", "model"): "reward_model",
}
"""Where a configuration names a component."""
_S = TypeVar("_S", bound=Section)


def load_config(path: Path, overrides: Sequence[str] = (), trust: Trust = EVERYTHING) -> RunConfig:
    """Read a YAML configuration and apply `key.subkey=value` overrides.

    Values are YAML; names of data, runs and folders are taken as they are, unless quoted.

    A file may begin with `extends: other.yaml`, relative to itself: its sections are merged into
    those of the other file, its lists and values replace them.

    Args:
        trust: which components the file may name as package.module:OBJECT; all by default, as the
            user named the file. Those that an override names are always trusted.

    Raises:
        ConfigError: naming the file, the key and the nearest known one.
    """
    loaded = with_overrides(read_tree(path), overrides)
    where = f"{path} or a KEY=VALUE setting" if overrides else str(path)
    return parse_config(loaded, where=where, trust=trust | trust_in_overrides(overrides))


def absolute_paths(config: RunConfig) -> RunConfig:
    """The configuration with absolute paths, so that its run can be resumed from any directory."""
    if not is_uri(config.data):
        config = config.model_copy(update={"data": str(Path(config.data).resolve())})
    return with_folders(config, _absolute_folder).with_from_run(
        lambda name: str(Path(name).expanduser().resolve())
    )


def _absolute_folder(name: str) -> str:
    """The absolute path of a folder; other names, perhaps of a hub, are kept."""
    path = Path(name).expanduser()
    return str(path.resolve()) if path.is_dir() else name


def with_overrides(
    tree: Mapping[str, Any], overrides: Sequence[str] | Mapping[str, Any]
) -> dict[str, Any]:
    """A tree with `key.subkey=value` settings applied in order, or with values by dotted key.

    Raises:
        ConfigError: see `load_config`.
    """
    changed = copy.deepcopy(dict(tree))
    if isinstance(overrides, Mapping):
        for key, value in overrides.items():
            _apply(changed, key, value, key)
        return changed
    for override in overrides:
        key, separator, text = override.partition("=")
        if not separator or not key:
            raise ConfigError(
                f"cannot read the override '{override}'",
                remedy="Write key=value, as in learner.policy.l2=0.0",
            )
        _apply(changed, key, _value(key, text), override)
    return changed


def trust_in_overrides(overrides: Sequence[str]) -> Trust:
    """Trust in the components that overrides name.

    Raises:
        ConfigError: see `load_config`.
    """
    pairs = (override.partition("=") for override in overrides)
    return Trust.of([_value(key, value) for key, _, value in pairs])


def _value(key: str, text: str) -> Any:
    """The value of an override."""
    named = key == "data" or key.rpartition(".")[2] in ("from_run", "pretrained")
    if named and text[:1] not in ("", "'", '"') and text != "null":
        return text
    return parse_value(text, where=f"{key}={text}")


def _apply(tree: dict[str, Any], key: str, value: Any, override: str) -> None:
    """Set `key.subkey` in the tree; a list item is named by its index or name.

    A new name in a slot keeps those options that the new component has, too. Errors name the
    `override`.
    """
    *parents, last = key.split(".")
    slot = tuple(parents) if last == "name" else (*parents, last)
    names = slot in _SLOTS and isinstance(value, str)
    if names:
        parents, last = list(slot), "name"
    node: Any = tree
    for depth, part in enumerate(parents, start=1):
        member = _member(node, part, override)
        if isinstance(node, dict) and node.get(member) is None:
            node[member] = {}
        if isinstance(node[member], str) and tuple(parents[:depth]) in _SLOTS:
            node[member] = {"name": node[member]}
        node = node[member]
        if not isinstance(node, dict | list):
            raise ConfigError(f"'{part}' is a value, not a section", where=override)
    if names and node.get("options"):
        node["options"] = _shared_options(_SLOTS[slot], value, node["options"])
    node[_member(node, last, override)] = value


def _shared_options(kind: Kind, name: str, options: Any) -> Any:
    """Those of `options` that the component called `name` has as well."""
    try:
        known = find_component(kind, name).options.model_fields
    except ConfigError:  # validation reports it
        return {}
    return {key: value for key, value in options.items() if key in known}


def _member(node: dict[str, Any] | list[Any], part: str, override: str) -> Any:
    """The key or index that `part` of a dotted key refers to in a section or list."""
    if isinstance(node, dict):
        return part
    for number, item in enumerate(node):
        if isinstance(item, dict) and item.get("name") == part:
            return number
    if not part.isdecimal() or len(part) > 9 or int(part) >= len(node):
        names = [str(item["name"]) for item in node if isinstance(item, dict) and "name" in item]
        named = f" named {', '.join(names)}" if names else ""
        raise ConfigError(f"no item {part} in a list of {len(node)}{named}", where=override)
    return int(part)


def parse_config(
    tree: Mapping[str, Any], *, where: str, trust: Trust = NOTHING, in_use: bool = False
) -> RunConfig:
    """Validate a configuration tree.

    Args:
        trust: which components it may name as package.module:OBJECT; none by default, as a file
            in a run, an export or a storage path may be anyone's.
        in_use: of a trained model: what only training needs is not imported.

    Raises:
        ConfigError: with the first offending key.
    """
    return parse_section(RunConfig, tree, where=where, trust=trust, in_use=in_use)


def parse_section(
    kind: type[_S],
    tree: Mapping[str, Any],
    *,
    where: str,
    trust: Trust = NOTHING,
    in_use: bool = False,
) -> _S:
    """Validate a tree as a section of `kind`; `trust` and `in_use` as of `parse_config`.

    Raises:
        ConfigError: with the first offending key.
    """
    try:
        return kind.model_validate(bounded(tree), context={"trust": trust, "in_use": in_use})
    except (RecursionError, OverflowError) as error:  # a tree from a JSON file has any depth
        raise ConfigError(f"too large or too deep: {error}", where=where) from None
    except ValidationError as error:
        first, key, message = first_mistake(error)
        hint = ""
        if first["type"] == "extra_forbidden":
            known = _known_keys(kind, first["loc"][:-1])
            wrong = str(first["loc"][-1])[:_LONGEST_SHOWN]
            hint = nearest(wrong, known) or f"; known keys: {', '.join(known)}"
            raise ConfigError(f"unknown key '{key[:_LONGEST_SHOWN]}'{hint}", where=where) from None
        if first["type"] == "component":  # its message has the value and a remedy
            said = first["ctx"]
            what = f"{key}.{said['key']}: {first['msg']}"
            raise ConfigError(what, where=where, remedy=said["remedy"]) from None
        raise ConfigError(f"{key or 'configuration'}: {message}", where=where) from None


def _known_keys(kind: type[Section], location: tuple[int | str, ...]) -> list[str]:
    section: Any = kind
    for part in location:
        if part not in section.model_fields:  # an index of a list, or the name of an item
            continue
        annotation = section.model_fields[part].annotation
        section = next(
            (a for a in getattr(annotation, "__args__", ()) if hasattr(a, "model_fields")),
            annotation,
        )
    return list(section.model_fields)
