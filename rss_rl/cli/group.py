"""How every command ends when something expected goes wrong: one message, exit code 2."""

from __future__ import annotations

__all__ = ["DEBUG_VARIABLE", "Commands"]

import os
import sys
import traceback
from typing import Any

import typer
from typer.core import TyperGroup

from rss_rl.errors import RssError

DEBUG_VARIABLE = "RSS_RL_DEBUG"


class Commands(TyperGroup):
    """A group of commands that prints an `RssError` as one message on standard error.

    `--debug`, or the environment variable RSS_RL_DEBUG=1, prints the traceback before it.
    """

    def invoke(self, ctx: Any) -> Any:
        """Run the command that was asked for."""
        try:
            return super().invoke(ctx)
        except RssError as error:
            if ctx.params.get("debug") or os.environ.get(DEBUG_VARIABLE, "") not in ("", "0"):
                traceback.print_exc()
            sys.stderr.write(f"error: {error}\n")
            raise typer.Exit(2) from error
