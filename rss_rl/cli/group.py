"""Command groups: one that reports expected errors, and one that imports its commands late."""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from typing import Any

import typer
import typer.main
from typer.core import TyperGroup

from rss_rl.api.terminal import guarded_streams
from rss_rl.errors import RssError

DEBUG_VARIABLE = "RSS_RL_DEBUG"


class Commands(TyperGroup):
    """A group of commands that prints an `RssError`, or a refused file, as one line on stderr.

    `--debug`, or the environment variable RSS_RL_DEBUG=1, prints the traceback before it.
    """

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        with guarded_streams():
            try:
                return super().invoke(ctx)
            except RssError as error:
                if _debugs(ctx):
                    traceback.print_exc()
                sys.stderr.write(f"error: {error}\n")
                raise typer.Exit(2) from error
            except OSError as error:
                if error.filename is None or _debugs(ctx):
                    raise
                # Of a file or a name that nobody expected to be refused.
                sys.stderr.write(f"error: {error.filename}: {error.strerror}\n")
                raise typer.Exit(2) from error


def _debugs(ctx: Any) -> bool:
    return ctx.params.get("debug") or os.environ.get(DEBUG_VARIABLE, "") not in ("", "0")


def deferred(module: str) -> type[TyperGroup]:
    """A group with the commands of a module's `app`, imported on first use.

    So `rss-rl --help` does not import what only these commands need.
    """

    class Deferred(TyperGroup):
        def list_commands(self, ctx: Any) -> list[str]:
            self._load()
            return super().list_commands(ctx)

        def get_command(self, ctx: Any, cmd_name: str) -> Any:
            self._load()
            return super().get_command(ctx, cmd_name)

        def _load(self) -> None:
            if not self.commands:
                app = importlib.import_module(module).app
                self.commands = typer.main.get_group(app).commands

    return Deferred
