"""Where the C library takes tensors from, by its own account."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

_PROGRAM = """
import ctypes, sys
import torch
from rss_rl.reading.device import keep_freed_memory

class Account(ctypes.Structure):  # mallinfo2 of glibc 2.33
    _fields_ = tuple((name, ctypes.c_size_t) for name in (
        "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks",
        "fordblks", "keepcost"))

account = ctypes.CDLL(None).mallinfo2
account.restype = Account
if "keep" in sys.argv:
    assert keep_freed_memory()
start, kept = account(), []
for size in (20, 30, 40):  # MiB
    kept.append(torch.zeros(size << 18))
    print(account().hblks - start.hblks)  # pieces that the system gave for themselves
del kept[:2]
print((account().arena - start.arena) >> 20)  # taken from the system for all others, MiB
"""


def account(*arguments: str) -> list[int]:
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, *arguments], capture_output=True, text=True, check=True
    )
    return [int(line) for line in done.stdout.split()]


@pytest.mark.skipif(
    platform.libc_ver()[0] != "glibc" or platform.libc_ver()[1] < "2.33",
    reason="the C library is not glibc, or keeps no such account",
)
def test_what_is_freed_is_kept_but_for_the_largest() -> None:
    assert account() == [1, 2, 3, 0]
    *pieces, held = account("keep")
    assert pieces == [0, 0, 1]
    assert held >= 50
