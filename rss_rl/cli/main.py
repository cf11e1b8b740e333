"""`rss-rl`: the command line. Commands import torch and Ray only when they run."""

from __future__ import annotations

import errno
import os
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import cyclopts

from rss_rl.api.demo import demo
from rss_rl.api.doctor import doctor
from rss_rl.api.evaluate import evaluate
from rss_rl.api.explain import explain
from rss_rl.api.export import export
from rss_rl.api.fit import fit
from rss_rl.api.predict import predict
from rss_rl.api.report import report
from rss_rl.api.select import select
from rss_rl.api.serve import serve
from rss_rl.api.status import status
from rss_rl.api.submit import submit
from rss_rl.api.sweep import sweep
from rss_rl.api.terminal import guarded_streams, shell
from rss_rl.api.train import train
from rss_rl.cli import show
from rss_rl.cli.commands import add, group
from rss_rl.cli.components import components
from rss_rl.cli.status import show_status
from rss_rl.errors import RssError, nearest
from rss_rl.version import VERSION

_EPILOG = """
Begin with `rss-rl demo`. With data of your own:

`rss-rl fit reviews.csv --text review --label stars --keep 0.3`

`rss-rl select runs/reviews "A dull film with one good scene."`

--debug before a command also prints tracebacks of expected errors.
"""

if sys.flags.optimize > 1:
    raise SystemExit(
        "error: PYTHONOPTIMIZE=2 (python -OO): removes the texts that options are made of. Set it"
        " to 1, or leave it out"
    )
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)

COMMANDS = group(
    "rss-rl",
    "Learn which words of a sentence matter: reinforced self-attention.",
    version=f"rss-rl {VERSION}",
    help_epilogue=_EPILOG,
)
COMMANDS.register_install_completion_command(help="Install completion for the current shell.")
add(COMMANDS, demo, show.fitted)
for name, purpose in (
    ("data", "List datasets, fetch them, prepare them for training, show what was prepared."),
    ("config", "Show configurations, with what each key means; list the shipped ones."),
):
    COMMANDS.command(
        f"rss_rl.cli.{name}:app", name=name, help=purpose, sort_key=len(list(COMMANDS))
    )
add(COMMANDS, fit, show.fitted)
add(COMMANDS, train, show.trained)
add(COMMANDS, status, show_status)
add(COMMANDS, evaluate, show.evaluated)
add(COMMANDS, select, show.selected)
add(COMMANDS, explain, show.written)
add(COMMANDS, serve)
add(COMMANDS, predict)
add(COMMANDS, export, show.written)
add(COMMANDS, report, show.reported)
add(COMMANDS, sweep, show.swept)
add(COMMANDS, components)
add(COMMANDS, submit)
add(COMMANDS, doctor, show.checked)


def app(arguments: Sequence[str] | None = None) -> None:
    """Run a command. Expected errors, and refused files, are one line on standard error.

    Args:
        arguments: default: those of the process.

    Raises:
        SystemExit: the command ended otherwise than with 0.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    debug = words[:1] == ["--debug"]
    words = words[debug:]
    with guarded_streams():
        try:
            COMMANDS(words)
        except cyclopts.CycloptsError as error:
            helped = shell("rss-rl", *(error.command_chain or ()), "--help")
            said = _mistake(error, words)
            _fail(f"{said}{'' if said.endswith('?') else '.'} See {helped}")
        except RssError as error:
            if debug:
                traceback.print_exc()
            _fail(str(error))
        except BrokenPipeError:
            # Of `rss-rl ... | head`.
            _drop_output()
            raise SystemExit(1) from None
        except OSError as error:
            full = error.filename is None and error.errno in _FULL
            if debug or not (error.filename or full):
                raise
            if full:
                _drop_output()
            # Of a file or a name that nobody expected to be refused.
            _fail(f"{error.filename or 'a file or the output'}: {error.strerror}")


def _drop_output() -> None:
    """What is left to print has nowhere to go."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _mistake(error: cyclopts.CycloptsError, words: Sequence[str]) -> str:
    """What is wrong with the words of a command."""
    unused = error.unused_tokens or []
    if isinstance(error, cyclopts.UnusedCliTokensError):
        return f"unexpected argument {shell(*unused)}"
    if isinstance(error, cyclopts.UnknownOptionError) and error.token.value == "-":
        return "standard input (-) is read by `rss-rl predict --input -` alone: name a file"
    if isinstance(error, cyclopts.UnknownCommandError) and unused:
        return f"unknown command '{unused[0]}'{nearest(unused[0], list(COMMANDS))}"
    missing = isinstance(error, cyclopts.MissingArgumentError) and error.keyword is None
    if missing and error.argument is not None:
        return f"{error.argument.name} is missing{_columns(words)}"
    return str(error).removesuffix(".")


def _columns(words: Sequence[str]) -> str:
    """The columns of the first table that a command names."""
    from rss_rl.data.tables import column_names

    with suppress(RssError, OSError):
        file = next((Path(word) for word in words[1:] if Path(word).is_file()), None)
        return "" if file is None else f"; {file} has the columns {', '.join(column_names(file))}"
    return ""


def _fail(message: str) -> None:
    sys.stderr.write(f"error: {message}\n")
    raise SystemExit(2)


if __name__ == "__main__":
    app()
