"""Slots of a configuration that a component fills: `NAME`, or `{name: NAME, options: {...}}`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, ClassVar, Self, TypeVar

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
    folder_options,
)
from rss_rl.errors import ConfigError

LARGEST = 1e15
_S = TypeVar("_S", bound="Section")


class Section(Options):
    """A part of the configuration: frozen, strict, no unknown keys, no NaN.

    Numbers and their squares must fit into float32, which computations use.
    """

    @model_validator(mode="after")
    def _computable(self) -> Self:
        for name in type(self).model_fields:
            value = getattr(self, name)
            for number in value if isinstance(value, tuple) else (value,):
                if isinstance(number, float) and abs(number) > LARGEST:
                    raise ValueError(
                        f"{name}={number:g} is beyond the largest number allowed, {LARGEST:g}"
                    )
        return self


class Choice(Section):
    """The component that fills a slot, with all its options.

    A name that imports code is refused in a file that the user did not name: `model_validate` is
    called with `context={"trust": Trust}` there.
    """

    kind: ClassVar[Kind]

    name: str
    """An installed component, see `rss-rl components`, or package.module:OBJECT."""
    options: dict[str, Any] = Field(default={})
    """Its options, see `rss-rl components KIND NAME`."""

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


def plugins_named(node: Any, key: str = "") -> Iterator[tuple[str, str]]:
    """Dotted key and name of each slot in a section that names package.module:OBJECT."""
    if isinstance(node, Choice) and ":" in node.name:
        yield f"{key}.name", node.name
    for name, value in _inner(node):
        yield from plugins_named(value, f"{key}.{name}".lstrip("."))


def with_folders(section: _S, change: Callable[[str], str]) -> _S:
    """The section with `change` applied to all folders that it or its components' options name."""
    tree = section.model_dump(mode="json")
    changed = False
    for (*path, last), folder in _folders(section):
        new = change(folder)
        changed |= new != folder
        node: Any = tree
        for key in path:
            node = node[key]
        node[last] = new
    return type(section).model_validate(tree) if changed else section


def _folders(
    node: Any, path: tuple[str | int, ...] = ()
) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Path of keys and folder of each field or option of type `Folder`."""
    if isinstance(node, Section):
        named = [(name, getattr(node, name)) for name in folder_options(type(node))]
        yield from (((*path, name), folder) for name, folder in named if folder is not None)
    if isinstance(node, Choice):
        for option in folder_options(node.component.options):
            if node.options.get(option) is not None:
                yield (*path, "options", option), node.options[option]
    for name, value in _inner(node):
        yield from _folders(value, (*path, name))


def _inner(node: Any) -> Iterable[tuple[Any, Any]]:
    """The members of a section or list, by key or index."""
    if isinstance(node, Section):
        return ((name, getattr(node, name)) for name in type(node).model_fields)
    return enumerate(node) if isinstance(node, list | tuple) else ()
