"""Who writes to a storage path: writer.json, renewed while its process lives.

A lease is a courtesy between processes that share nothing but the storage, no lock: between reading
and writing it another may come. It keeps two trainers from taking turns at one path by mistake.
"""

from __future__ import annotations

__all__ = ["FRESH_S", "WRITER_FILE", "Lease", "live_writer"]

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
from rss_rl.storage import Storage

WRITER_FILE = "writer.json"
FRESH_S = 120.0
"""A lease that was not renewed for so long is free; the hosts' clocks should agree within it."""
_MAX_BYTES = 10_000
_LOOK_S, _LONGEST_RENEWAL_S = 1.0, 10.0
_log = logging.getLogger("rss_rl.storage")
_held: set[str] = set()  # tokens of this process


class Lease:
    """This process as the writer of a storage path.

    Args:
        storage: where writer.json is.
        take_over: take it from a writer that seems alive.
        wait: for a writer that may have died a moment ago, until its lease is old; one that renews
            it is alive. Blocks for `fresh_s` at most.
        fresh_s: as `FRESH_S`.

    Raises:
        StorageError: another process writes there, or the storage refuses.
    """

    def __init__(
        self,
        storage: Storage,
        *,
        take_over: bool = False,
        wait: bool = False,
        fresh_s: float = FRESH_S,
    ) -> None:
        self._storage, self._token = storage, uuid.uuid4().hex
        self._lost: StorageError | None = None
        writer = None if take_over else live_writer(storage)
        if writer is not None and wait:
            writer = _outlast(storage, writer, fresh_s)
        if writer is not None:
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
            self._lost = StorageError(
                f"{_name(record)} has taken over",
                where=self._storage.uri,
                remedy="Stop one of the two, or give this run another storage path",
            )
            raise self._lost
        self._write()
        self._lost = None

    @property
    def lost(self) -> StorageError | None:
        """Who had taken over at the last renewal; None where nobody had."""
        return self._lost

    def check(self) -> None:
        """Raise StorageError where the last renewal met another writer; asks nobody."""
        if self._lost is not None:
            raise self._lost

    @contextmanager
    def kept(self, every_s: float) -> Iterator[None]:
        """Renew by a thread of its own, every `every_s` seconds, while something lasts long.

        Whoever works meanwhile calls `check` between two steps; a storage that refuses for a while
        is asked again.
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


def _outlast(storage: Storage, writer: str, fresh_s: float) -> str | None:
    """Wait until a lease is old or gone; the writer's name, where it renews it meanwhile."""
    _log.warning(
        "%s: %s may have died; waiting up to %.0f s for a sign of it", storage.uri, writer, fresh_s
    )
    began, first = time.monotonic(), _read(storage)
    while time.monotonic() - began < fresh_s:
        time.sleep(min(_LOOK_S, fresh_s / 10))
        alive = live_writer(storage)
        if alive is None or _read(storage) != first:
            return alive
    return None


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
