"""What the signature and the docstring of a function say: to the command line, and to people."""

from __future__ import annotations

import builtins
import re
import sys
from collections.abc import Callable
from functools import wraps
from inspect import Parameter, Signature, cleandoc, formatannotation, isfunction, signature
from textwrap import fill
from typing import Any, Unpack, get_args, get_origin, get_type_hints

from cyclopts import Parameter as Option

_MODULES = re.compile(r"\b(?:\w+\.)+(?=\w)")


class _Text(str):
    """A type or a default that is shown without quotes."""

    __repr__ = str.__str__


UNSAID = _Text("...")
"""The default of an argument that may be left out; its docstring names it."""


class _Names(dict[str, Any]):
    """Names in annotations; a class of the name for those that only type checkers import."""

    def __missing__(self, name: str) -> Any:
        return type(name, (), {})


def arguments(function: Callable[..., Any]) -> tuple[list[Parameter], str]:
    """The parameters of a function and its docstring; keyword arguments of a TypedDict one by one.

    Annotations are types, with what is said of a parameter on top.
    """
    names = _Names(vars(builtins) | vars(sys.modules[function.__module__]))
    hints = get_type_hints(function, localns=names, include_extras=True)
    text, parameters = cleandoc(function.__doc__ or ""), []
    for name, parameter in signature(function).parameters.items():
        if get_origin(hints[name]) is not Unpack:
            parameters.append(parameter.replace(annotation=hints[name]))
            continue
        (record,) = get_args(hints[name])
        parameters += [
            Parameter(key, Parameter.KEYWORD_ONLY, default=UNSAID, annotation=hint)
            for key, hint in get_type_hints(record, include_extras=True).items()
        ]
        lines = meanings(cleandoc(record.__doc__ or "")).replace("\\", r"\\")
        text = re.sub(rf"(?m)^    {name}: .*", lines, text)
    return parameters, text


def meanings(docstring: str) -> str:
    """The lines under Args."""
    return docstring.partition("\n\nArgs:\n")[2].partition("\n\n")[0]


def readable(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same function for people: plain types, and every argument by name in the docstring."""

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    parameters, text = arguments(function)
    shown, listed = [], meanings(text)
    for parameter in parameters:
        default = UNSAID if isfunction(parameter.default) else parameter.default
        kind, *more = get_args(parameter.annotation) or [parameter.annotation]
        options = [part.help for part in more if isinstance(part, Option) and part.help]
        kind = kind if hasattr(parameter.annotation, "__metadata__") else parameter.annotation
        shown.append(parameter.replace(annotation=_shown(kind), default=default))
        if options and f"    {parameter.name}: " not in listed:
            line = f"    {parameter.name}: {' '.join(options)}"
            text = text.replace(listed, f"{listed}\n{fill(line, 92, subsequent_indent=' ' * 8)}")
            listed = meanings(text)
    returned = _Text(function.__annotations__["return"])
    call.__signature__ = Signature(shown, return_annotation=returned)  # type: ignore[attr-defined]
    call.__doc__ = text
    call.__module__ = "rss_rl"  # by which it is pickled
    return call


def _shown(kind: Any) -> _Text:
    """A type as it would be typed."""
    return _Text(_MODULES.sub("", formatannotation(kind)))
