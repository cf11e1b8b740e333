"""The lease of a storage path's writer: writer.json, renewed while its process runs.

Processes that share only the storage have no lock: another may write between the reading and the
writing of the lease. So a writer reads the lease again a moment later; the process whose token it
has then holds it. Each holder's `epoch` is one above its predecessor's: a late renewal that
overwrites a newer lease is recognised by its lower epoch, and undone.

A holder is alive while it renews the lease. It counts as dead at once only if this process would
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
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from rss_rl.errors import StorageError
from rss_rl.json_files import json_object
from rss_rl.proc_stat import PROC, read_proc_stat
from rss_rl.storage import Storage

WRITER_FILE = "writer.json"
FRESH_S = 120.0
"""A lease not renewed for this long is free; the hosts' clocks should agree within it."""
_MAX_BYTES = 10_000
_LOOK_S, _LONGEST_RENEWAL_S = 1.0, 10.0
_SETTLE_S, _TRIES = 0.2, 5
"""Wait after a claim, for a concurrent one to show; attempts of a take-over."""
_log = logging.getLogger("rss_rl.storage")
_held: set[str] = set()  # tokens of this process


class Lease:
    """Makes this process the writer of a storage path.

    Args:
        storage: where writer.json is.
        take_over: take the lease from a writer that seems alive.
        wait: until the lease of a writer that may have died expires, for at most `fresh_s`; if it
            is renewed, the writer is alive.
        fresh_s: as `FRESH_S`.

    Raises:
        StorageError: another process writes there, or the storage fails.

    `lost` is the error of the last renewal if another process had taken over, else None.
    """

    def __init__(
        self,
        storage: Storage,
        *,
        take_over: bool = False,
        wait: bool = False,
        fresh_s: float = FRESH_S,
    ) -> None:
        self._storage, self._token, self._fresh_s = storage, uuid.uuid4().hex, fresh_s
        self.lost: StorageError | None = None
        self._epoch, self._renewed = 0, time.monotonic()
        writer = None if take_over else live_writer(storage, fresh_s)
        if writer is not None and wait:
            writer = _outlast(storage, writer, fresh_s)
        if writer is not None:
            raise _occupied(storage, writer)
        _held.add(self._token)
        try:
            self._claim(take_over)
        except BaseException:
            _held.discard(self._token)
            raise

    def _claim(self, take_over: bool) -> None:
        """Write the lease, and check that it is not overwritten.

        Raises:
            StorageError: another process claims it at the same time, or the storage fails.
        """
        found: dict[str, Any] | None = None
        for _ in range(_TRIES if take_over else 1):
            self._epoch = max(self._epoch, _epoch(_read(self._storage)) or 0) + 1
            self._write()
            time.sleep(_SETTLE_S)
            found = _read(self._storage)
            if found is not None and found.get("token") == self._token:
                self._renewed = time.monotonic()
                return
        raise _occupied(self._storage, "another process" if found is None else _name(found))

    def renew(self) -> None:
        """Renew the lease.

        Raises:
            StorageError: another process has taken over, or the storage fails.
        """
        record = _read(self._storage)
        if self._is_lost(record):
            who = "another process" if record is None else _name(record)
            self.lost = StorageError(
                f"{who} has taken over",
                where=self._storage.uri,
                remedy="Stop one of the two, or give this run another storage path",
            )
            raise self.lost
        self._write()
        self.lost, self._renewed = None, time.monotonic()

    def _is_lost(self, record: dict[str, Any] | None) -> bool:
        if record is None:
            # After so long a pause, another process may have held and released the lease meanwhile.
            return time.monotonic() - self._renewed > self._fresh_s
        epoch = _epoch(record)
        late = epoch is not None and epoch < self._epoch  # a late renewal by an earlier holder
        return record.get("token") != self._token and not late

    def check(self) -> None:
        """Raise StorageError if the last renewal found another writer; does not ask the storage."""
        if self.lost is not None:
            raise self.lost

    @contextmanager
    def kept(self, every_s: float) -> Iterator[None]:
        """Renew in a thread every `every_s` seconds, during a long operation.

        Call `check` between the steps of the operation; failed renewals are retried.
        """
        over = threading.Event()

        def renew() -> None:
            while not over.wait(every_s):
                with suppress(StorageError):
                    self.renew()

        thread = threading.Thread(target=renew, name="rss-rl lease", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join(_LONGEST_RENEWAL_S)

    def release(self) -> None:
        """Release the lease, if this process still holds it.

        Raises:
            StorageError: the storage fails; the lease then expires.
        """
        _held.discard(self._token)
        record = _read(self._storage)
        if record is not None and record.get("token") == self._token:
            self._storage.delete(WRITER_FILE)

    def _write(self) -> None:
        record = {
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "time": time.time(),
            "token": self._token,
            "epoch": self._epoch,
            "space": _space(),
            "started": _started(os.getpid()),
        }
        self._storage.write(WRITER_FILE, json.dumps(record).encode())


def _outlast(storage: Storage, writer: str, fresh_s: float) -> str | None:
    """Wait until a lease expires or is released; the writer's name, if it is renewed meanwhile."""
    _log.warning("%s: %s may have died; waiting up to %.0f s for it", storage.uri, writer, fresh_s)
    began, first = time.monotonic(), _read(storage)
    while time.monotonic() - began < fresh_s:
        time.sleep(min(_LOOK_S, fresh_s / 10))
        alive = live_writer(storage, fresh_s)
        if alive is None or _read(storage) != first:
            return alive
    return None


def live_writer(storage: Storage, fresh_s: float = FRESH_S) -> str | None:
    """The holder of a fresh lease, as `process 12 on host`; None without one, or if it is dead."""
    record = _read(storage)
    written = None if record is None else record.get("time")
    if record is None or not isinstance(written, int | float):
        return None
    if time.time() - written > fresh_s or _is_dead(record):
        return None
    return _name(record)


def _is_dead(record: dict[str, Any]) -> bool:
    """Whether the holder was in this process namespace, and no longer exists."""
    pid, space = record.get("pid"), _space()
    if space is None or record.get("space") != space or type(pid) is not int or pid <= 0:
        return False
    if pid == os.getpid() and record.get("started") == _started(pid):
        return record.get("token") not in _held
    return _started(pid) is None or _started(pid) != record.get("started")


def _space() -> str | None:
    """The boot and process namespace, which determine the visible processes; None if unknown."""
    try:
        boot = (PROC / "sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}/{os.readlink(PROC / 'self/ns/pid')}"
    except OSError:
        return None


def _started(pid: int) -> int | None:
    """Start time of a process in ticks since the boot; None without one."""
    found = read_proc_stat(pid)
    return None if found is None else found.started


def _epoch(record: dict[str, Any] | None) -> int | None:
    """The epoch of a lease; None for those of earlier versions."""
    epoch = None if record is None else record.get("epoch")
    return epoch if type(epoch) is int and 0 < epoch < 2**53 else None


def _occupied(storage: Storage, writer: str) -> StorageError:
    return StorageError(
        f"{writer} writes there",
        where=storage.uri,
        remedy="Wait two minutes if it is dead, use another storage path, or pass"
        " --take-over if you know that it has stopped",
    )


def _name(record: dict[str, Any]) -> str:
    text = f"process {record.get('pid')} on {record.get('host')}"
    return "".join(c for c in text if c.isprintable())[:200]


def _read(storage: Storage) -> dict[str, Any] | None:
    content = storage.read(WRITER_FILE)
    if content is None or len(content) > _MAX_BYTES:
        return None
    return json_object(content) or None
