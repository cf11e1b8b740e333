"""Slots of a configuration that a component fills: `NAME`, or `{name: NAME, options: {...}}`."""

from __future__ import annotations

__all__ = ["Choice", "Section", "plugins_named"]

from collections.abc import Iterator
from typing import Any, ClassVar

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
)
from rss_rl.errors import ConfigError


class Section(Options):
    """A part of the configuration: frozen, strict, no unknown keys, no NaN."""


class Choice(Section):
    """The component that fills a slot, with all its options.

    A name that imports code is refused where the configuration was read from a file that the user
    did not name: `model_validate` is given `context={"trust": Trust}` there.
    """

    kind: ClassVar[Kind]

    name: str = Field(
        description="An installed component, see `rss-rl components`, or package.module:OBJECT."
    )
    options: dict[str, Any] = Field(
        default={}, description="Its options, see `rss-rl components KIND NAME`."
    )

    @model_validator(mode="before")
    @classmethod
    def _from_name(cls, given: Any) -> Any:
        if isinstance(given, str):
            return {"name": given}
        if isinstance(given, dict) and "name" not in given and cls.kind in DEFAULTS:
            return {"name": DEFAULTS[cls.kind], **given}
        return given

    @model_validator(mode="after")
    def _complete(self, info: ValidationInfo) -> Choice:
        trust: Trust = (info.context or {}).get("trust", EVERYTHING)
        try:
            options = find_component(self.kind, self.name, trust).parse(self.options)
        except ConfigError as error:
            raise PydanticCustomError(
                "component", "{what}", {"what": error.what, "remedy": error.remedy}
            ) from None
        # Complete, so that what a run began with is known when a default changes.
        object.__setattr__(self, "options", options.model_dump(mode="json"))
        return self

    @property
    def component(self) -> Component:
        """What the name stands for; it was found, and may be imported, when this was validated."""
        return find_component(self.kind, self.name)

    def can(self, capability: str) -> bool:
        """Whether the component declares a capability under these options."""
        component = self.component
        return component.can(capability, component.parse(self.options))

    def build(self, setup: Any) -> Any:
        """What the component makes of a setup of its kind."""
        component = self.component
        return component.build(setup, component.parse(self.options))


def plugins_named(node: Any) -> Iterator[str]:
    """Names of the form package.module:OBJECT of all slots within a section."""
    if isinstance(node, Choice) and ":" in node.name:
        yield node.name
    if isinstance(node, Section):
        node = [getattr(node, name) for name in type(node).model_fields]
    if isinstance(node, list | tuple):
        for value in node:
            yield from plugins_named(value)
