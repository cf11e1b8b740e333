"""Terminal output with control characters in untrusted text escaped.

A terminal interprets escape sequences in any text: one in a token, a file name or a server's reason
phrase could set its title, fill the clipboard or hide earlier output. Standard output and error are
therefore guarded while a command runs; consoles, which emit their own sequences, escape their
input.
"""

from __future__ import annotations

import re
import shlex
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from io import TextIOWrapper
from typing import IO, Any, TextIO, cast

from rich.console import Console, ConsoleOptions, RenderableType
from rich.markup import escape
from rich.segment import Segment
from rich.table import Table

_SILENT_S = 5.0
"""Longest time without a line where there is no terminal."""
_CONTROLS = re.compile(
    "["
    "\x00-\x08\x0b-\x1f\x7f-\x9f"  # control characters except tab and line feed
    "\u202a-\u202e\u2066-\u2069"  # changes of text direction
    "\ud800-\udfff"  # bytes of a file name that are not UTF-8
    "]"
)


def printable(text: str) -> str:
    r"""Text with control characters escaped as in JSON.

    >>> printable("\x1b[2Jname")
    '\\u001b[2Jname'
    """
    return _CONTROLS.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


class _Guarded:
    """A stream that escapes control characters; consoles bypass it."""

    def __init__(self, stream: IO[str]) -> None:
        self.rich_proxied_file = stream  # the attribute by which rich finds the wrapped stream

    def write(self, text: str) -> int:
        self.rich_proxied_file.write(printable(text))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.rich_proxied_file, name)


def _tolerant(stream: IO[str]) -> IO[str]:
    """The stream, which writes as an escape what its encoding lacks."""
    if isinstance(stream, TextIOWrapper) and stream.errors == "strict":
        stream.reconfigure(errors="backslashreplace")
    return stream


@contextmanager
def guarded_streams(stdout: TextIO | None = None, stderr: TextIO | None = None) -> Iterator[None]:
    """Guard standard output and standard error, or the streams given instead."""
    out = cast(TextIO, _Guarded(_tolerant(stdout or sys.stdout)))
    err = cast(TextIO, _Guarded(_tolerant(stderr or sys.stderr)))
    with redirect_stdout(out), redirect_stderr(err):
        yield


class SafeConsole(Console):
    """A console that escapes in what it prints what a terminal interprets."""

    @property
    def encoding(self) -> str:
        """That of the underlying stream."""
        return (getattr(self.file, "encoding", None) or "utf-8").lower()

    @property
    def file(self) -> IO[str]:
        """The underlying stream, without guards and progress-bar proxies."""
        file = super().file
        while (behind := getattr(file, "rich_proxied_file", None)) is not None:
            file = behind
        return _tolerant(file)

    @file.setter
    def file(self, new_file: IO[str]) -> None:
        self._file = new_file

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Segments with text escaped; control segments are the console's own and are kept."""
        for segment in super().render(renderable, options):
            if segment.control:
                yield segment
            else:
                yield Segment(printable(segment.text), segment.style)


def shell(*words: object) -> str:
    """Words as one would type them.

    >>> shell("rss-rl", "train", "--resume", "runs/my film")
    "rss-rl train --resume 'runs/my film'"
    """
    return shlex.join(map(str, words))


def say(out: Console, text: str, style: str | None = None) -> None:
    """Print text verbatim: without markup, and with wrapping left to the terminal."""
    out.print(text, style=style, markup=False, highlight=False, soft_wrap=True)


@contextmanager
def busy(out: Console, what: str) -> Iterator[Callable[[str], None]]:
    """Say what takes a while: beside a spinner on a terminal, elsewhere as a line every 5 s.

    Yields:
        What changes the text.
    """
    if out.is_terminal:
        with out.status(escape(what)) as status:
            yield lambda text: status.update(escape(text[: out.width - 3]))
        return
    said = time.monotonic()

    def tell(text: str) -> None:
        nonlocal said
        if time.monotonic() - said >= _SILENT_S:
            said = time.monotonic()
            say(out, text)
            out.file.flush()

    yield tell


@contextmanager
def counted(out: Console, what: str) -> Iterator[Callable[[str, int, int | None], None]]:
    """As `busy`; yields a function of the current step, the amount done, and the total if known."""
    with busy(out, what) as tell:

        def show(step: str, done: int, end: int | None) -> None:
            tell(f"{step}: {done:,}" + ("" if end is None else f" of {end:,}"))

        yield show


def plain_table(
    header: Sequence[str], body: Iterable[Sequence[str]] = (), *, left: int | None = None
) -> Table:
    """A table without rules, whose cells are shown verbatim.

    Args:
        left: number of left-aligned columns, the others are right-aligned; None: all.
    """
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for number, name in enumerate(header):
        right = left is not None and number >= left
        table.add_column(escape(name), justify="right" if right else "left", overflow="fold")
    for row in body:
        table.add_row(*map(escape, row))
    return table
