"""Who writes to a storage path: writer.json, renewed while its process lives.

A lease is a courtesy between processes that share nothing but the storage, no lock: between reading
and writing it another may come. It keeps two trainers from taking turns at one path by mistake.
"""

from __future__ import annotations

__all__ = ["FRESH_S", "WRITER_FILE", "Lease", "live_writer"]

import json
import os
import socket
import time
import uuid
from typing import Any

from rss_rl.errors import StorageError
from rss_rl.storage import Storage

WRITER_FILE = "writer.json"
FRESH_S = 120.0
"""A lease that was not renewed for so long is free; the hosts' clocks should agree within it."""
_MAX_BYTES = 10_000
_held: set[str] = set()  # tokens of this process


class Lease:
    """This process as the writer of a storage path.

    Args:
        storage: where writer.json is.
        take_over: take it from a writer that seems alive.
    """

    def __init__(self, storage: Storage, *, take_over: bool = False) -> None:
        self._storage, self._token = storage, uuid.uuid4().hex
        writer = live_writer(storage)
        if writer is not None and not take_over:
            raise StorageError(
                f"{writer} writes there",
                where=storage.uri,
                remedy="Wait two minutes if it is dead, name another storage path, or give"
                " --take-over if you know that it has stopped",
            )
        self._write()
        _held.add(self._token)

    def renew(self) -> None:
        """Say that this process is alive.

        Raises:
            StorageError: another process has taken over, or the storage refuses.
        """
        record = _read(self._storage)
        if record is not None and record.get("token") != self._token:
            raise StorageError(
                f"{_name(record)} has taken over",
                where=self._storage.uri,
                remedy="Stop one of the two, or give this run another storage path",
            )
        self._write()

    def release(self) -> None:
        """Let go, where the lease is still this process's.

        Raises:
            StorageError: the storage refuses; the lease ends by itself then.
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
        }
        self._storage.write(WRITER_FILE, json.dumps(record).encode())


def live_writer(storage: Storage) -> str | None:
    """Who holds a fresh lease, as `process 12 on host`; None where nobody does.

    A process of this host that no longer exists holds none.
    """
    record = _read(storage)
    written = None if record is None else record.get("time")
    if record is None or not isinstance(written, int | float):
        return None
    if time.time() - written > FRESH_S or _is_dead(record):
        return None
    return _name(record)


def _is_dead(record: dict[str, Any]) -> bool:
    pid = record.get("pid")
    if record.get("host") != socket.gethostname() or type(pid) is not int or pid <= 0:
        return False
    if pid == os.getpid():
        return record.get("token") not in _held
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):
        return False
    return False


def _name(record: dict[str, Any]) -> str:
    text = f"process {record.get('pid')} on {record.get('host')}"
    return "".join(c for c in text if c.isprintable())[:200]


def _read(storage: Storage) -> dict[str, Any] | None:
    content = storage.read(WRITER_FILE)
    if content is None or len(content) > _MAX_BYTES:
        return None
    try:
        record = json.loads(content)
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) else None
