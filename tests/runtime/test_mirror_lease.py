"""One writer at a storage path: who is alive, who is refused, who takes over."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
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


def test_a_second_attempt_waits_for_a_writer_that_died(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    storage = open_storage(str(tmp_path))
    write(storage, time=time.time() + 60)  # whatever its clock says
    began = time.monotonic()
    lease = Lease(storage, wait=True, fresh_s=0.4)
    assert time.monotonic() - began >= 0.4
    lease.renew()
    assert [record.message.count("process 1 on elsewhere") for record in caplog.records] == [1]


def test_a_writer_that_renews_its_lease_is_not_waited_for_to_the_end(tmp_path: Path) -> None:
    storage = open_storage(str(tmp_path))
    first = Lease(storage)
    with first.kept(0.2):
        began = time.monotonic()
        with pytest.raises(StorageError, match="writes there"):
            Lease(storage, wait=True, fresh_s=30)
        assert time.monotonic() - began < 15
    first.check()


def test_whoever_works_long_keeps_the_lease_and_hears_that_it_is_lost(tmp_path: Path) -> None:
    storage = open_storage(str(tmp_path))
    lease = Lease(storage)
    before = storage.read(WRITER_FILE)
    with lease.kept(0.02):
        wait_for(lambda: storage.read(WRITER_FILE) != before)
        lease.check()
        wait_for(lambda: take(tmp_path) or lease.lost is not None)
        with pytest.raises(StorageError, match="process 1 on elsewhere has taken over"):
            lease.check()
    assert live_writer(storage) == "process 1 on elsewhere"


def take(folder: Path) -> None:
    """As another process does; the lease may come between, so this is repeated."""
    record = {"host": "elsewhere", "pid": 1, "time": time.time(), "token": "x"}
    (folder / "other").write_text(json.dumps(record))
    os.replace(folder / "other", folder / WRITER_FILE)


def wait_for(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.005)
