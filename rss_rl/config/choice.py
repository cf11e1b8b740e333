"""Slots of a configuration that a component fills: `NAME`, or `{name: NAME, options: {...}}`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, ClassVar, TypeVar

from pydantic import Field, ValidationInfo, model_validator
from pydantic_core import PydanticCustomError

from rss_rl.components import (
    DEFAULTS,
    EVERYTHING,
    Component,
    Kind,
    Options,
    Trust,
    find_component,
    is_installed,
)
from rss_rl.config.yaml_files import flat_settings
from rss_rl.errors import ConfigError

_S = TypeVar("_S", bound="Section")
_OF_TRAINING: frozenset[Kind] = frozenset({"policy_update", "logger", "reward_model"})
"""What a trained model does without."""


class Section(Options):
    """A part of the configuration: frozen, strict, no unknown keys, no NaN."""


class Choice(Section):
    """The component that fills a slot, with all its options.

    A name that imports code is refused in a file that the user did not name: `model_validate` is
    called with `context={"trust": Trust}` there. With `{"in_use": True}`, what only training needs
    is not imported: it was checked when the run began.
    """

    kind: ClassVar[Kind]

    name: str
    """An installed component, see `rss-rl components`, or package.module:OBJECT."""
    options: dict[str, Any] = Field(default={})
    """Its options, see `rss-rl components KIND NAME`."""

    @model_validator(mode="before")
    @classmethod
    def _from_name(cls, value: Any) -> Any:
        if isinstance(value, str):
            return {"name": value}
        if isinstance(value, dict) and "name" not in value and cls.kind in DEFAULTS:
            return {"name": DEFAULTS[cls.kind], **value}
        return value

    @model_validator(mode="after")
    def _complete(self, info: ValidationInfo) -> Choice:
        context = info.context or {}
        trust: Trust = context.get("trust", EVERYTHING)
        unused = context.get("in_use") and self.kind in _OF_TRAINING
        if unused and is_installed(self.kind, self.name):
            return self
        key = "name"
        try:
            component = find_component(self.kind, self.name, trust)
            key = "options"
            options = component.parse(self.options)
        except ConfigError as error:
            said = {"key": key, "what": error.what, "remedy": error.remedy}
            raise PydanticCustomError("component", "{what}", said) from None
        # With defaults filled in, so that a run keeps its options when a default changes.
        object.__setattr__(self, "options", options.model_dump(mode="json"))
        return self

    @property
    def component(self) -> Component:
        """The named component; validation has found it and checked that it may be imported."""
        return find_component(self.kind, self.name)

    @property
    def capabilities(self) -> frozenset[str]:
        """The component's capabilities under these options."""
        component = self.component
        return component.all_capabilities(component.parse(self.options))

    def can(self, capability: str) -> bool:
        """Whether the component declares a capability under these options."""
        return capability in self.capabilities

    def build(self, setup: Any) -> Any:
        """Build the component from a setup of its kind."""
        component = self.component
        return component.build(setup, component.parse(self.options))


def plugins_named(section: Section) -> Iterator[tuple[str, str]]:
    """Dotted key and name of each slot in a section that names package.module:OBJECT."""
    for key, value in flat_settings(section.model_dump(mode="json")):
        if key.endswith(".name") and ":" in str(value) and not key.startswith("phases."):
            yield key, value


def with_folders(section: _S, change: Callable[[str], str]) -> _S:
    """The section with `change` applied to all folders, or names on a hub, of pretrained models.

    These are all settings and options called `pretrained`.
    """
    tree = section.model_dump(mode="json")
    changed = _with_pretrained(tree, change)
    valid = {"in_use": True}  # all but these names has been checked
    return section if changed == tree else type(section).model_validate(changed, context=valid)


def _with_pretrained(node: Any, change: Callable[[str], str]) -> Any:
    if isinstance(node, list):
        return [_with_pretrained(value, change) for value in node]
    if not isinstance(node, dict):
        return node
    return {
        key: change(value)
        if key == "pretrained" and isinstance(value, str)
        else _with_pretrained(value, change)
        for key, value in node.items()
    }
