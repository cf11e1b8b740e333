"""Commands of rss-rl, run in this process."""

from __future__ import annotations

import io
import os
from collections.abc import Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from typing import NamedTuple
from unittest import mock

from rss_rl.cli.main import app


class Result(NamedTuple):
    """How a command ended, what it printed, and the error that ended it, if it printed one."""

    exit_code: int
    stdout: str
    stderr: str
    exception: BaseException | None = None

    @property
    def output(self) -> str:
        return self.stdout + self.stderr


def invoke(words: Sequence[object], env: Mapping[str, str] | None = None) -> Result:
    """Run a command; an error that it does not expect is raised."""
    out, err = io.StringIO(), io.StringIO()
    code, error = 0, None
    with mock.patch.dict(os.environ, env or {}), redirect_stdout(out), redirect_stderr(err):
        try:
            app([str(word) for word in words])
        except SystemExit as end:
            code, error = end.code if isinstance(end.code, int) else 0, end.__context__
    return Result(code, out.getvalue(), err.getvalue(), error)
