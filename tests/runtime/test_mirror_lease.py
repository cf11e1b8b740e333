"""One writer at a storage path: who is alive, who is refused, who takes over."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from rss_rl.errors import StorageError
from rss_rl.runtime.mirror_lease import FRESH_S, WRITER_FILE, Lease, live_writer
from rss_rl.storage import Storage, open_storage


def write(storage: Storage, **changes: Any) -> None:
    record = {"host": "elsewhere", "pid": 1, "time": time.time(), "token": "x"}
    storage.write(WRITER_FILE, json.dumps(record | changes).encode())


def test_a_second_live_writer_is_refused(tmp_path: Path) -> None:
    storage = open_storage(str(tmp_path))
    first = Lease(storage)
    with pytest.raises(StorageError, match=rf"process {os.getpid()} on .*--take-over"):
        Lease(storage)
    second = Lease(storage, take_over=True)
    with pytest.raises(StorageError, match="has taken over"):
        first.renew()
    first.release()  # no longer its own
    second.renew()
    second.release()
    assert live_writer(storage) is None


@pytest.mark.parametrize(
    ("changes", "live"),
    [
        ({}, True),
        ({"time": time.time() - FRESH_S - 60}, False),
        ({"host": os.uname().nodename, "pid": 2**22 + 1}, False),
        ({"time": "now"}, False),
        ({"pid": "x\x1b[31m"}, True),
    ],
    ids=["another host", "old", "dead process", "no time", "odd process"],
)
def test_who_is_alive(tmp_path: Path, changes: dict[str, Any], live: bool) -> None:
    storage = open_storage(str(tmp_path))
    write(storage, **changes)
    writer = live_writer(storage)
    assert (writer is not None) == live
    assert writer is None or writer.isprintable()


@pytest.mark.parametrize("content", [b"", b"\xff", b"[1]", b"[" * 9000, b"x" * 20_000])
def test_any_other_content_is_no_lease(tmp_path: Path, content: bytes) -> None:
    storage = open_storage(str(tmp_path))
    storage.write(WRITER_FILE, content)
    Lease(storage).release()
