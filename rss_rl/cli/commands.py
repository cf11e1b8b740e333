"""How Python functions become commands: signature and docstring declare everything, once."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial
from inspect import Parameter, Signature, cleandoc
from operator import attrgetter
from typing import Annotated, Any, get_args, get_origin

import cyclopts

from rss_rl.api.options import NO_OPTION, Typed
from rss_rl.api.signatures import UNSAID, arguments, meanings
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
    extra = {} if show is None else _parameters(show)
    extra.pop("call", None)

    parameters = _parameters(function) | extra
    single = sum(parameter.kind is Parameter.POSITIONAL_ONLY for parameter in parameters.values())

    def run(*words: Any, **options: Any) -> None:
        mine = {name: options.pop(name) for name in extra if name in options}
        several = [list(words[single:])] if len(words) > single else []
        call = partial(function, *words[:single], *several, **options)
        call() if show is None else show(call, **mine)

    command: Any = run
    command.__signature__ = Signature(sorted(parameters.values(), key=attrgetter("kind")))
    command.__annotations__ = {name: parameter.annotation for name, parameter in parameters.items()}
    text, _, examples = arguments(function)[1].partition("\n\nExamples:\n")
    listed = meanings(text)
    command.__doc__ = _SECTIONS.sub("", text) + (f"\n\nArgs:\n{listed}" if listed else "")
    ending = "Examples:\n\n" + cleandoc(examples) if examples else None
    name = function.__name__.strip("_")
    app.command(run, name=name, help_epilogue=ending, sort_key=len(list(app)))


def _parameters(function: Callable[..., Any]) -> dict[str, Parameter]:
    """The parameters that the command line has, with types."""
    parameters = {}
    for parameter in arguments(function)[0]:
        kind, more = _read(parameter.annotation)
        if parameter.default is UNSAID:  # what is left out is not given
            hint = _ANNOTATED[(kind | None, *more)]
            parameters[parameter.name] = parameter.replace(default=None, annotation=hint)
        elif NO_OPTION not in get_args(parameter.annotation):
            parameters[parameter.name] = _parameter(parameter, kind, more)
    return parameters


def _parameter(parameter: Parameter, kind: Any, more: Sequence[Any]) -> Parameter:
    """A parameter of type `kind`, and what is said of it, as the command line has it."""
    plain = parameter.replace(annotation=_ANNOTATED[(kind, *more, cyclopts.Parameter())])
    dashed = any(name.startswith("--") for part in more for name in part.name or ())
    if parameter.kind is Parameter.KEYWORD_ONLY or dashed:
        return plain.replace(kind=Parameter.KEYWORD_ONLY)
    if get_origin(kind) is not list:
        return plain.replace(kind=Parameter.POSITIONAL_ONLY)
    required = cyclopts.Parameter(required=parameter.default is Parameter.empty)
    hint = _ANNOTATED[(get_args(kind)[0], *more, required)]
    return Parameter(parameter.name, Parameter.VAR_POSITIONAL, annotation=hint)


def _read(hint: Any) -> tuple[Any, list[cyclopts.Parameter]]:
    """The type that the command line reads, and what is said of the parameter."""
    if get_origin(hint) is not Annotated:
        return hint, []
    kind, *more = get_args(hint)
    kinds = [part.type for part in more if isinstance(part, Typed)]
    options = [part for part in more if isinstance(part, cyclopts.Parameter)]
    return (kinds or [kind])[0], options


def _default(value: Any) -> Any:
    return None if value is False or value in ((), "", [], None) else value
