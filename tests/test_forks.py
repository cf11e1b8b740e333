"""What runs in another process: forked after torch has computed here, or started afresh."""

from __future__ import annotations

import subprocess
import sys

import pytest

FORKED = """
import multiprocessing, torch
from rss_rl.reading.device import fixed_threads

def compute():
    {before}
    return (numbers * numbers).sum()

torch.set_num_threads(2)
numbers = torch.ones(1 << 20)
numbers.sum()
child = multiprocessing.get_context("fork").Process(target=compute)
child.start()
child.join(20)
hangs = child.is_alive()
child.kill()
assert not hangs and child.exitcode == 0
"""
FRESH = """
import gymnasium
try:
    gymnasium.make("rss_rl.envs:rss_rl/TokenSelection-v0")
except Exception as error:
    assert "needs either `run`" in str(error), error
"""


@pytest.mark.parametrize(
    "code",
    [
        FORKED.format(before="pass"),
        FORKED.format(before="fixed_threads(2).__enter__()"),
        FRESH,
    ],
    ids=["forked", "forked with threads of its own", "fresh"],
)
def test_it_runs_in_another_process(code: str) -> None:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=90)
    assert done.returncode == 0, done.stderr
