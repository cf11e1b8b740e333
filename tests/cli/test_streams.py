"""Where output goes nowhere, and where the interpreter leaves out what the program is made of."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize(
    ("settings", "output", "message"),
    [({}, "/dev/full", "No space left"), ({"PYTHONOPTIMIZE": "2"}, os.devnull, "PYTHONOPTIMIZE")],
)
def test_it_is_one_line(settings: dict[str, str], output: str, message: str) -> None:
    command = [sys.executable, "-c", "from rss_rl.cli.main import app; app(['components'])"]
    with Path(output).open("w") as stream:
        done = subprocess.run(
            command, stdout=stream, stderr=subprocess.PIPE, text=True, env=os.environ | settings
        )
    assert done.returncode in (1, 2)
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: ")
    assert message in line
