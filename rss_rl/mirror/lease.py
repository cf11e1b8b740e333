"""The owner of a storage path: the one record writer.json, renewed while its process runs.

Processes that share only the storage have no lock: another may write between the reading and the
writing of the record. So a writer reads it again a moment later; the process whose token it has
then owns the path. Each owner's `epoch` is one above its predecessor's: a late renewal that
overwrites a newer record is recognised by its lower epoch, and undone.

An owner is alive while it renews the record. It counts as dead at once only if this process would
see it alive: in the same boot and process namespace (containers share host names, and each has a
process 1), if no process there has its pid and start time.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import threading
import time
import uuid
from contextlib import suppress
from pathlib import Path
from typing import Any

from rss_rl.errors import StorageError
from rss_rl.json_files import json_object
from rss_rl.storage import Storage

WRITER_FILE = "writer.json"
FRESH_S = 120.0
"""A record not renewed for this long is free; the hosts' clocks should agree within it."""
RENEW_S = 30.0
_PROC = Path("/proc")
_READS = 3
_MAX_BYTES = 10_000
_LOOK_S, _LONGEST_RENEWAL_S = 1.0, 10.0
_SETTLE_S = 0.2
"""Wait after a claim, for a concurrent one to show."""
_log = logging.getLogger("rss_rl.storage")


class Lease:
    """Makes this process the owner of a storage path until `release`, renewing in a thread.

    Args:
        storage: where writer.json is.
        take_over: take the path from a writer that seems alive.
        wait: until the record of a writer that may have died expires, for at most `FRESH_S`; if it
            is renewed, the writer is alive.

    Raises:
        StorageError: another process writes there, or the storage fails.
    """

    def __init__(self, storage: Storage, *, take_over: bool = False, wait: bool = False) -> None:
        self._storage, self._token = storage, uuid.uuid4().hex
        self._over = threading.Event()
        self.is_lost = False  # another writer was found
        if take_over and not _read(storage, damaged=True):
            storage.delete(WRITER_FILE)
        writer = None if take_over else live_writer(storage)
        if writer is not None and wait:
            writer = _outlast(storage, writer)
        if writer is not None:
            raise _occupied(storage, writer)
        self._epoch = _epoch(_read(storage)) + 1
        self._write()
        time.sleep(_SETTLE_S)
        if self._is_taken(record := _read(storage)):
            raise _occupied(storage, _name(record))
        self._write()  # again, as a late renewal may have overwritten it
        self._thread = threading.Thread(target=self._keep, name="rss-rl lease", daemon=True)
        self._thread.start()

    def _keep(self) -> None:
        while not self._over.wait(RENEW_S) and not self.is_lost:
            with suppress(StorageError):  # where the storage fails it is tried again
                self.renew()

    def renew(self) -> None:
        """Renew the record; raises as `confirm` does."""
        self.confirm()
        self._write()

    def confirm(self) -> None:
        """Ask the storage whether this process still owns the path.

        Raises:
            StorageError: another process has taken over, or the storage fails.
        """
        record = _read(self._storage)
        self.is_lost = self.is_lost or self._is_taken(record)
        if self.is_lost:
            raise StorageError(
                f"{_name(record)} has taken over",
                where=self._storage.uri,
                remedy="Stop one of the two, or give this run another storage path",
            )

    def _is_taken(self, record: dict[str, Any]) -> bool:
        """Whether the record is another owner's, or was deleted by one that took over."""
        late = 0 < _epoch(record) < self._epoch  # a late renewal by an earlier owner
        return record.get("token") != self._token and not late

    def release(self) -> None:
        """Give up the path, if this process still owns it.

        Raises:
            StorageError: the storage fails; the record then expires.
        """
        self._over.set()
        self._thread.join(_LONGEST_RENEWAL_S)
        if _read(self._storage).get("token") == self._token:
            self._storage.delete(WRITER_FILE)

    def _write(self) -> None:
        record = {
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "process": _identity(os.getpid()),
            "time": time.time(),
            "token": self._token,
            "epoch": self._epoch,
        }
        self._storage.write(WRITER_FILE, json.dumps(record).encode())


def _outlast(storage: Storage, writer: str) -> str | None:
    """Wait until a record expires or is deleted; the writer's name, if it is renewed meanwhile."""
    _log.warning("%s: %s may have died; waiting up to %.0f s for it", storage.uri, writer, FRESH_S)
    began, first = time.monotonic(), _read(storage)
    while time.monotonic() - began < FRESH_S:
        time.sleep(_LOOK_S)
        alive = live_writer(storage)
        if alive is None or _read(storage) != first:
            return alive
    return None


def live_writer(storage: Storage) -> str | None:
    """The owner with a fresh record, as `process 12 on host`; None without one or if it is dead."""
    record = _read(storage)
    written = record.get("time")
    if not isinstance(written, int | float) or time.time() - written > FRESH_S:
        return None
    pid, process, mine = record.get("pid"), record.get("process"), _identity(os.getpid())
    if isinstance(process, str) and type(pid) is int and mine is not None:
        here = process.rpartition(" ")[0] == mine.rpartition(" ")[0]
        if here and process != _identity(pid):
            return None  # it was in this process namespace, and no longer exists
    return _name(record)


def _identity(pid: int) -> str | None:
    """Boot and process namespace of this process, and the start of the process with that number,
    separated by a space; None if unknown, or if there is no such process."""
    try:
        boot = (_PROC / "sys/kernel/random/boot_id").read_text().strip()
        space = os.readlink(_PROC / "self/ns/pid")
        # The name of the program, in brackets, may contain anything: see proc_pid_stat(5).
        fields = (_PROC / str(pid) / "stat").read_bytes().rpartition(b")")[2].split()
        return f"{boot}/{space} {int(fields[19])}"
    except (OSError, ValueError, IndexError):
        return None


def _epoch(record: dict[str, Any]) -> int:
    epoch = record.get("epoch")
    return epoch if type(epoch) is int and 0 < epoch < 2**53 else 0


def _occupied(storage: Storage, writer: str) -> StorageError:
    return StorageError(
        f"{writer} writes there",
        where=storage.uri,
        remedy="Wait two minutes if it is dead, use another storage path, or pass"
        " --take-over if you know that it has stopped",
    )


def _name(record: dict[str, Any]) -> str:
    if not record:
        return "another process"
    text = f"process {record.get('pid')} on {record.get('host')}"
    return "".join(c for c in text if c.isprintable())[:200]


def _read(storage: Storage, *, damaged: bool = False) -> dict[str, Any]:
    """The record; empty if there is none, or with `damaged` something else in its place.

    Raises:
        StorageError: it is damaged, not only in one reply; or the storage fails.
    """
    for _ in range(_READS):
        content = storage.read(WRITER_FILE, _MAX_BYTES)
        record = json_object(content or b"")
        if record or damaged or content is None:
            return record
        time.sleep(_SETTLE_S)
    raise StorageError(
        "does not hold the record of a writer: the reply was cut short, or the file is damaged",
        where=f"{storage.uri.rstrip('/')}/{WRITER_FILE}",
        remedy="Try again, or pass --take-over if you know that nothing writes there",
    )
