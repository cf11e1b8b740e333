"""How Python functions become commands: signature and docstring declare everything, once."""

from __future__ import annotations

import builtins
import re
import sys
from collections.abc import Callable, Sequence
from functools import partial
from inspect import Parameter, Signature, cleandoc, signature
from typing import Annotated, Any, Unpack, get_args, get_origin, get_type_hints

import cyclopts

from rss_rl.api.options import NO_OPTION, Typed
from rss_rl.api.terminal import SafeConsole

_ANNOTATED: Any = Annotated  # of types that are known only here
_SECTIONS = re.compile(r"(?s)\n\n(Args|Returns|Raises):\n.*")


def group(name: str, purpose: str, **more: Any) -> cyclopts.App:
    """A program, or a command that has commands."""
    return cyclopts.App(
        name=name,
        help=purpose,
        help_format="markdown",
        help_flags=["-h", "--help"],
        default_parameter=cyclopts.Parameter(
            negative=(), allow_repeating=True, show_default=_default
        ),
        console=SafeConsole(highlight=False),
        result_action="return_value",
        exit_on_error=False,
        print_error=False,
        **more,
    )


def add(
    app: cyclopts.App, function: Callable[..., Any], show: Callable[..., Any] | None = None
) -> None:
    """Make `function` a command of its name.

    Parameters that are positional or keyword in Python are positional here, unless they are named
    with two hyphens. `Typed` parameters have another type, `PythonOnly` ones are left out. The
    section `Examples` of the docstring ends the help.

    Args:
        show: called with the function, its arguments bound, and with keyword options of its own; it
            calls the function, and shows the result. None: the function itself shows all.
    """
    own = {} if show is None else _parameters(show)
    own.pop("call", None)

    parameters = _parameters(function) | own
    single = sum(found.kind is Parameter.POSITIONAL_ONLY for found in parameters.values())

    def run(*arguments: Any, **options: Any) -> None:
        mine = {name: options.pop(name) for name in own if name in options}
        several = [list(arguments[single:])] if len(arguments) > single else []
        call = partial(function, *arguments[:single], *several, **options)
        call() if show is None else show(call, **mine)

    made: Any = run
    made.__signature__ = Signature(sorted(parameters.values(), key=lambda found: found.kind))
    made.__annotations__ = {name: found.annotation for name, found in parameters.items()}
    text, _, examples = cleandoc(function.__doc__ or "").partition("\n\nExamples:\n")
    records = [get_args(hint)[0].__doc__ for hint in _hints(function).values() if _is_record(hint)]
    meanings = "".join(map(_arguments, [text, *map(cleandoc, records)]))
    made.__doc__ = _SECTIONS.sub("", text) + (f"\n\nArgs:\n{meanings}" if meanings else "")
    ending = "Examples:\n\n" + cleandoc(examples) if examples else None
    name = function.__name__.strip("_")
    app.command(run, name=name, help_epilogue=ending, sort_key=len(list(app)))


def _parameters(function: Callable[..., Any]) -> dict[str, Parameter]:
    """The parameters that the command line has, with types, keyword arguments one by one."""
    found, hints = {}, _hints(function)
    for name, parameter in signature(function).parameters.items():
        hint = hints[name]
        if _is_record(hint):
            (record,) = get_args(hint)
            for key, own in get_type_hints(record, include_extras=True).items():
                kind, more = _read(own)
                optional = _ANNOTATED[(kind | None, *more)]  # what is not given is left out
                found[key] = Parameter(
                    key, Parameter.KEYWORD_ONLY, default=None, annotation=optional
                )
        elif NO_OPTION not in get_args(hint):
            found[name] = _parameter(parameter, *_read(hint))
    return found


def _parameter(parameter: Parameter, kind: Any, more: Sequence[Any]) -> Parameter:
    """A parameter of type `kind`, and what is said of it, as the command line has it."""
    made = parameter.replace(annotation=_ANNOTATED[(kind, *more, cyclopts.Parameter())])
    dashed = any(name.startswith("--") for part in more for name in part.name or ())
    if parameter.kind is Parameter.KEYWORD_ONLY or dashed:
        return made.replace(kind=Parameter.KEYWORD_ONLY)
    if get_origin(kind) is not list:
        return made.replace(kind=Parameter.POSITIONAL_ONLY)
    required = cyclopts.Parameter(required=parameter.default is Parameter.empty)
    hint = _ANNOTATED[(get_args(kind)[0], *more, required)]
    return Parameter(parameter.name, Parameter.VAR_POSITIONAL, annotation=hint)


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    names = _Names(vars(builtins) | vars(sys.modules[function.__module__]))
    return get_type_hints(function, localns=names, include_extras=True)


def _is_record(hint: Any) -> bool:
    return get_origin(hint) is Unpack


class _Names(dict[str, Any]):
    """Names in annotations; `Any` for those that are imported only for type checkers."""

    def __missing__(self, name: str) -> Any:
        return Any


def _read(hint: Any) -> tuple[Any, list[cyclopts.Parameter]]:
    """The type that the command line reads, and what is said of the parameter."""
    if get_origin(hint) is not Annotated:
        return hint, []
    kind, *more = get_args(hint)
    kinds = [part.type for part in more if isinstance(part, Typed)]
    told = [part for part in more if isinstance(part, cyclopts.Parameter)]
    return (kinds or [kind])[0], told


def _arguments(docstring: str) -> str:
    _, _, rest = docstring.partition("\n\nArgs:\n")
    return re.sub(r"(?s)\n\n.*", "", rest) + "\n" if rest else ""


def _default(value: Any) -> Any:
    return None if value is False or value in ((), "", [], None) else value
