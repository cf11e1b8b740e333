"""One writer at a storage path: who is alive, who is refused, who takes over."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from rss_rl.errors import StorageError
from rss_rl.mirror import lease as lease_module
from rss_rl.mirror.lease import (
    FRESH_S,
    WRITER_FILE,
    Lease,
    _identity,
    live_writer,
)
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


@dataclass(frozen=True)
class Cutting(Storage):
    """Cuts replies short, as many as it is told."""

    left: list[int]

    def read(self, name: str, limit: int | None = None) -> bytes | None:
        content = super().read(name, limit)
        if content is None or not self.left[0]:
            return content
        self.left[0] -= 1
        return content[: len(content) // 2]


def test_a_reply_that_was_cut_short_is_no_other_writer(tmp_path: Path) -> None:
    base = open_storage(str(tmp_path))
    storage = Cutting(base.uri, base.filesystem, base.root, [0])
    lease = Lease(storage)
    storage.left[0] = 1
    lease.renew()
    storage.left[0] = 100
    for use in (lease.confirm, lambda: Lease(storage)):
        with pytest.raises(StorageError, match=r"writer\.json: .* cut short"):
            use()
    assert not lease.is_lost
    storage.left[0] = 0
    lease.renew()
    (tmp_path / WRITER_FILE).write_text('{"tok')
    second = Lease(storage, take_over=True)
    second.confirm()
    second.release()


OWN = str(_identity(os.getpid()))


@pytest.mark.parametrize(
    ("changes", "live"),
    [
        ({}, True),
        ({"time": time.time() - FRESH_S - 60}, False),
        ({"pid": 2**22 + 1, "process": OWN}, False),
        ({"pid": os.getpid(), "process": f"{OWN}0"}, False),
        ({"pid": os.getpid(), "process": OWN}, True),
        ({"pid": 2**22 + 1, "process": f"another-{OWN}"}, True),
        ({"time": "now"}, False),
        ({"pid": "x\x1b[31m"}, True),
    ],
    ids=[
        "another host",
        "old",
        "dead process",
        "another process of its number",
        "live process",
        "process of another container of this host",
        "no time",
        "odd process",
    ],
)
def test_who_is_alive(tmp_path: Path, changes: dict[str, Any], live: bool) -> None:
    storage = open_storage(str(tmp_path))
    write(storage, **changes)
    writer = live_writer(storage)
    assert (writer is not None) == live
    assert writer is None or writer.isprintable()


def test_a_second_attempt_waits_for_a_writer_that_died(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease_module, "FRESH_S", 0.4)
    monkeypatch.setattr(lease_module, "_LOOK_S", 0.04)
    storage = open_storage(str(tmp_path))
    write(storage, time=time.time() + 60)  # whatever its clock says
    began = time.monotonic()
    lease = Lease(storage, wait=True)
    assert time.monotonic() - began >= 0.4
    lease.renew()
    assert [record.message.count("process 1 on elsewhere") for record in caplog.records] == [1]


CLAIM = (
    "import os, sys\n"
    "from rss_rl.errors import StorageError\n"
    "from rss_rl.mirror.lease import Lease\n"
    "from rss_rl.storage import open_storage\n"
    "try: Lease(open_storage(sys.argv[1]))\n"
    "except StorageError as error: print(os.getpid(), error)\n"
    "else: print(os.getpid(), 'taken')"
)
NAMESPACE = ("unshare", "--pid", "--fork", "--mount-proc")


def has_namespaces() -> bool:
    return (
        shutil.which("unshare") is not None
        and not subprocess.run(
            [*NAMESPACE, "true"], capture_output=True, timeout=60, check=False
        ).returncode
    )


@pytest.mark.skipif(not has_namespaces(), reason="this user may not make a process namespace")
def test_a_writer_in_another_process_namespace_is_alive(tmp_path: Path) -> None:
    """Its host has the same name, and no process there has this one's number."""
    lease = Lease(open_storage(str(tmp_path)))
    claim = [*NAMESPACE, sys.executable, "-c", CLAIM, str(tmp_path)]
    output = subprocess.run(claim, capture_output=True, text=True, timeout=120, check=True).stdout
    assert output.startswith("1 ")
    assert f"process {os.getpid()} on {os.uname().nodename} writes there" in output
    lease.renew()
    lease.release()
    output = subprocess.run(claim, capture_output=True, text=True, timeout=120, check=True).stdout
    assert output == "1 taken\n"
    # Process 1 is always there; this one was another, and nobody here saw it end.
    with pytest.raises(StorageError, match="process 1 on"):
        Lease(open_storage(str(tmp_path)))


def test_of_several_that_come_at_once_one_has_it(tmp_path: Path) -> None:
    for number in range(3):
        storage = open_storage(str(tmp_path / str(number)))
        start, got = threading.Barrier(4), list[Lease]()

        def claim(
            storage: Storage = storage, start: threading.Barrier = start, got: list[Lease] = got
        ) -> None:
            start.wait()
            try:
                got.append(Lease(storage))
            except StorageError as error:
                assert "writes there" in str(error)

        threads = [threading.Thread(target=claim) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        (lease,) = got
        lease.renew()


def test_a_late_renewal_by_who_held_it_before_is_undone(tmp_path: Path) -> None:
    storage = open_storage(str(tmp_path))
    first = Lease(storage)
    old = storage.read(WRITER_FILE)
    second = Lease(storage, take_over=True)
    assert old is not None
    storage.write(WRITER_FILE, old)  # was under way when the second came
    second.renew()
    with pytest.raises(StorageError, match="has taken over"):
        first.renew()
    second.renew()


def test_who_was_paused_does_not_take_what_was_given_back(tmp_path: Path) -> None:
    storage = open_storage(str(tmp_path))
    first = Lease(storage)
    Lease(storage, take_over=True).release()
    with pytest.raises(StorageError, match="has taken over"):
        first.renew()
