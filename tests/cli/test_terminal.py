"""What comes from outside never reaches the terminal raw."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import sys
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from io import BytesIO, StringIO, TextIOWrapper

import pytest
from invoking import invoke
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from rss_rl.api.terminal import SafeConsole, counted, guarded_streams, plain_table, printable
from rss_rl.cli import main
from rss_rl.cli.commands import add, group
from rss_rl.cli.show import console, echo
from rss_rl.errors import DataError

EVIL = "\x1b]0;owned\x07\x1b[2J\x9b31m\x85\u202ecod.\udcff\r"
RAW = set(EVIL) - set("]0;owned[2J31mcd.")


def test_printable_keeps_what_people_write() -> None:
    for text in ("a\tb\n", "naïve 読む 👩‍🚀 nb\xa0sp", "می‌خواهم"):
        assert printable(text) == text
    shown = printable(EVIL)
    assert not RAW & set(shown)
    assert shown.startswith(r"\u001b]0;owned\u0007\u001b[2J\u009b31m")
    # Within JSON the escape is the very character.
    tree = {"token": "\x9b\x7f\u202e\ud800"}
    assert json.loads(printable(json.dumps(tree, ensure_ascii=False))) == tree


@pytest.mark.parametrize(
    "say",
    [
        echo,
        print,
        lambda text: console().print(text, markup=False),
        lambda text: SafeConsole(stderr=True).print(text, markup=False, soft_wrap=True),
        lambda text: console().print(table_of(text)),
        lambda text: SafeConsole(stderr=True).print(f"[bold]{text}[/bold]"),
        lambda text: (_ for _ in ()).throw(DataError(text, where=text, remedy=text)),
    ],
)
def test_every_way_out_is_guarded(
    say: Callable[[str], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    def doctor() -> None:
        say(EVIL)

    monkeypatch.setattr("rss_rl.cli.main.COMMANDS", group("rss-rl", ""))
    add(main.COMMANDS, doctor)
    result = invoke(["doctor"])
    said = result.output
    assert "owned" in said
    assert not RAW & set(said)


def table_of(text: str) -> Table:
    made = Table(text)
    made.add_row(text)
    return made


def read_all(master: int) -> bytes:
    """What a pseudo-terminal was sent, which one read need not return; it ends with an error."""
    said = b""
    with contextlib.suppress(OSError):
        while part := os.read(master, 1 << 16):
            said += part
    os.close(master)
    return said


@pytest.mark.skipif(sys.platform == "win32", reason="there are no pseudo-terminals")
def test_a_terminal_gets_our_colours_and_cursor_moves_and_no_others() -> None:
    master, slave = pty.openpty()
    with os.fdopen(slave, "w") as stream, guarded_streams(stream, stream):
        shown = SafeConsole(stderr=True, force_terminal=True, width=60)
        with Progress(console=shown) as bar:  # which puts a stream of its own before ours
            bar.add_task("\x1b]0;owned\x07 file", total=2, completed=1)
            print("\x1b]0;owned\x07 line")
            shown.print("[red]mine[/red]")
    said = read_all(master).decode()
    assert "\x1b]" not in said
    assert "\x07" not in said
    assert "owned" in said
    assert "\x1b[31mmine" in said
    assert "\x1b[?25l" in said  # the cursor is hidden while the bar moves
    assert r"\u001b[" not in said


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_a_terminal_without_utf_8_is_shown_escapes(encoding: str) -> None:
    with TextIOWrapper(BytesIO(), encoding) as stream:
        with redirect_stdout(stream), redirect_stderr(stream):
            main.app(["fit", "--help"])
            with guarded_streams():
                with Progress(console=SafeConsole(force_terminal=True, width=60)) as bar:
                    bar.add_task("a file", total=2, completed=1)
                with SafeConsole(force_terminal=True).status("busy"):
                    pass
                table = plain_table(["Spearman ρ", "score²"], [["1", "naïve 読"]])
                console().print(table)
                echo("██ ●")
        stream.flush()
        said = stream.buffer.getvalue().decode(encoding)  # type: ignore[attr-defined]
    for shown in ("--keep", "a file", r"Spearman \u03c1", r"\u8aad", r"\u2588\u2588 \u25cf"):
        assert shown in said
    assert "naïve" in said or encoding == "ascii"


def test_what_takes_a_while_is_said_every_five_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, out = [0.0], StringIO()
    monkeypatch.setattr("time.monotonic", lambda: clock[0])
    with counted(SafeConsole(file=out), "preparing") as progress:
        for second in range(13):
            clock[0] = second
            progress("counting", second, None if second < 8 else 100)
    assert out.getvalue() == "counting: 5\ncounting: 10 of 100\n"
    with counted(SafeConsole(file=out, force_terminal=True, width=40), "[b] file") as progress:
        progress("[b]\x1b[2J" + "a" * 50, 1, None)
    assert "[b]\\u001b[2Jaaa" in out.getvalue()


def test_the_streams_are_put_back() -> None:
    before = sys.stdout, sys.stderr
    with guarded_streams(StringIO(), StringIO()):
        assert sys.stdout is not before[0]
    assert (sys.stdout, sys.stderr) == before
    assert isinstance(console(), Console)
