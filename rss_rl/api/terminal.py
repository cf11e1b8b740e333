"""The terminal's guard: what a file, a server or a user wrote is printed, and never obeyed.

A terminal takes escape sequences from whatever text it is sent: one in a token, a file name or a
server's reason phrase could set its title, fill the clipboard or hide what was said before. So the
two streams are guarded while a command runs, and consoles, which send sequences of their own, guard
what they are given.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import (
    AbstractContextManager,
    contextmanager,
    nullcontext,
    redirect_stderr,
    redirect_stdout,
)
from typing import IO, Any, TextIO, cast

from rich.console import Console, ConsoleOptions, RenderableType
from rich.markup import escape
from rich.segment import Segment
from rich.table import Table

_CONTROLS = re.compile(
    "["
    "\x00-\x08\x0b-\x1f\x7f-\x9f"  # control characters but tab and line feed
    "\u202a-\u202e\u2066-\u2069"  # which turn the direction of writing
    "\ud800-\udfff"  # bytes of a file name that are no UTF-8
    "]"
)


def printable(text: str) -> str:
    r"""Text whose control characters are written out, as JSON writes them.

    >>> printable("\x1b[2Jname")
    '\\u001b[2Jname'
    """
    return _CONTROLS.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


class _Guarded:
    """A stream that writes control characters out; a console writes past it."""

    def __init__(self, stream: TextIO) -> None:
        self.rich_proxied_file = stream  # the name by which rich finds what it shall write to

    def write(self, text: str) -> int:
        self.rich_proxied_file.write(printable(text))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.rich_proxied_file, name)


@contextmanager
def guarded_streams(stdout: TextIO | None = None, stderr: TextIO | None = None) -> Iterator[None]:
    """Guard standard output and standard error, or the streams given instead."""
    out = cast(TextIO, _Guarded(stdout or sys.stdout))
    err = cast(TextIO, _Guarded(stderr or sys.stderr))
    with redirect_stdout(out), redirect_stderr(err):
        yield


class SafeConsole(Console):
    """A console that styles what it is given, and writes out the control characters in it."""

    @property
    def file(self) -> IO[str]:
        """The stream itself, behind guards and what a progress bar puts before it."""
        file = super().file
        while (behind := getattr(file, "rich_proxied_file", None)) is not None:
            file = behind
        return file

    @file.setter
    def file(self, new_file: IO[str]) -> None:
        self._file = new_file

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """The segments of what is printed; those that steer the cursor are the console's own."""
        for segment in super().render(renderable, options):
            if segment.control or not _CONTROLS.search(segment.text):
                yield segment
            else:
                yield Segment(printable(segment.text), segment.style)


def say(out: Console, text: str, style: str | None = None) -> None:
    """Print a text as it is: no markup is read in it, and long lines are the terminal's to wrap."""
    out.print(text, style=style, markup=False, highlight=False, soft_wrap=True)


def busy(out: Console, what: str) -> AbstractContextManager[object]:
    """Say what takes a while: beside a spinner, or as a line where rich would need ipywidgets."""
    if not out.is_jupyter:
        return out.status(what)
    say(out, what)
    return nullcontext()


@contextmanager
def counted(out: Console, what: str) -> Iterator[Callable[[int, int | None], None]]:
    """Show how much of what takes long is done: a live line, gone at the end; elsewhere a line.

    Yields:
        A callback for how many are done, and of how many.
    """
    from rich.progress import MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    if out.is_jupyter or not out.is_terminal:
        say(out, what)
        yield lambda *_: None
        return
    columns = (TextColumn("{task.description}"), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=out, transient=True) as bar:
        task = bar.add_task(escape(what), total=None)
        yield lambda done, end: bar.update(task, completed=done, total=end)


def plain_table(
    header: Sequence[str], body: Iterable[Sequence[str]] = (), *, left: int | None = None
) -> Table:
    """A table without lines, whose cells are shown as they are.

    Args:
        left: columns that are aligned to the left, the others to the right; None: all.
    """
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for number, name in enumerate(header):
        right = left is not None and number >= left
        table.add_column(escape(name), justify="right" if right else "left", overflow="fold")
    for row in body:
        table.add_row(*map(escape, row))
    return table
