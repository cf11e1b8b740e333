"""The copy of a run on a storage path: claimed, restored from, and updated while the run trains.

One process at a time writes to a path. Its content is a run directory like the local one, except
for the lock, so it can be copied back by other means, too.

The learner never waits for the storage: it only says that there is news, and a thread reads the
state of the run directory and uploads it. A failed upload is retried while training continues, and
only a failure of the last upload is an error.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from rss_rl.config import RunConfig
from rss_rl.durable import disk_errors
from rss_rl.errors import StorageError
from rss_rl.logs.events import NO_LOG, EventSink
from rss_rl.mirror.files import Item, Signature, current_state, in_order, present
from rss_rl.mirror.lease import RENEW_S, Lease
from rss_rl.mirror.restore import continue_from, refuse_foreign, refuse_present
from rss_rl.runs.run_directory import CONFIG_FILE, STATUS_FILE
from rss_rl.storage import Storage, open_storage

_log = logging.getLogger("rss_rl.storage")
_POLL_S = 1.0
_RETRY_S, _LONGEST_RETRY_S = 1.0, 60.0
"""After a first failure, and where doubling it ends."""
_DRAIN_S, _LAST_TRIES = 600.0, 5
"""For the last upload: its time, and failures in a row without progress that end it."""
_WARN_AFTER = 3
_SILENT_S = 15.0
"""After which a storage that gives no sign of life is not waited for, once a stop was asked for."""


class NullMirror:
    """No copy; its methods are those of `Mirror`."""

    def start(self, log: EventSink) -> None:
        """Do nothing."""

    def changed(self) -> None:
        """Do nothing."""

    def scalars(self) -> dict[str, float]:
        """No metrics."""
        return {}

    def finish(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


def open_mirror(
    uri: str | None,
    run_dir: Path,
    config: RunConfig,
    resume: bool,
    overwrite: bool,
    take_over: bool = False,
    stop: Callable[[], bool] = lambda: False,
) -> Mirror | NullMirror:
    """Claim a storage path for a run, and with `resume` restore the run from it.

    Args:
        uri: of the storage, or a local path; None for no mirror.
        resume: the run that it holds. overwrite: delete that run. Neither: it must hold no run.
        take_over: take the path from a writer that seems alive. Without it, `resume` waits for one
            that may have died, for two minutes at most.
        stop: whether a stop was asked for: then a silent storage is not waited for.

    Raises:
        StorageError: it fails, or another process writes there.
        CheckpointError: the run that it holds cannot be resumed.
    """
    if uri is None:
        return NullMirror()
    storage = open_storage(uri)
    lease = Lease(storage, take_over=take_over, wait=resume)
    restored = None
    try:
        refuse_foreign(storage)
        if resume:
            resolved = config.model_dump(mode="json")
            restored = continue_from(storage, run_dir, resolved, lease.confirm)
        elif not overwrite:
            refuse_present(storage)
    except BaseException:
        with suppress(StorageError):
            lease.release()
        raise
    return Mirror(storage, run_dir, lease, keep=resume, restored=restored, stop=stop)


class Mirror:
    """The mirror of one run; `changed` and `finish` must be called by the training thread.

    Args:
        lease: released by `close`.
        keep: the files on the storage; else they are deleted at the start.
        restored: number of files that were fetched from the storage, for the log.
        stop: see `open_mirror`.
    """

    def __init__(
        self,
        storage: Storage,
        run_dir: Path,
        lease: Lease,
        *,
        keep: bool,
        restored: int | None = None,
        stop: Callable[[], bool] = lambda: False,
    ) -> None:
        self._storage, self._run_dir, self._lease = storage, run_dir, lease
        self._keep, self._restored, self._stop = keep, restored, stop
        self._alive, self._silent = time.monotonic(), False
        self._log: EventSink = NO_LOG
        self._known: dict[str, Signature] = {}
        self._news = threading.Condition()
        self._requested, self._done = 0, 0  # number of states, and of the newest uploaded one
        self._failures, self._in_a_row, self._upload_s = 0, 0, 0.0
        self._cause: StorageError | None = None
        self._closing = False
        self._thread = threading.Thread(target=self._work, name="rss-rl mirror", daemon=True)

    def start(self, log: EventSink) -> None:
        """Start copying; failures are logged to `log`.

        Raises:
            StorageError: the storage fails.
        """
        self._log = log
        if self._restored is not None:
            log.write("storage_restored", files=self._restored)
        self._known = present(self._storage.files())
        if not self._keep:
            self._remove(set(self._known))
        self._thread.start()

    def changed(self) -> None:
        """Called after a new checkpoint; does not wait or raise."""
        with self._news:
            self._requested += 1
            self._news.notify_all()

    def scalars(self) -> dict[str, float]:
        """Metrics of the copying, by tag."""
        return {
            "storage/failures": self._failures,
            "storage/lag_checkpoints": self._requested - self._done,
            "storage/upload_s": self._upload_s,
        }

    def finish(self) -> None:
        """Copy the current state and wait for it; raises StorageError if that fails."""
        self._in_a_row, self._alive = 0, time.monotonic()
        self.changed()
        deadline = time.monotonic() + _DRAIN_S
        with self._news:
            while self._done < self._requested and self._in_a_row < _LAST_TRIES:
                if time.monotonic() > deadline or not self._thread.is_alive():
                    break
                if self._stop() and time.monotonic() - self._alive > _SILENT_S:
                    self._silent = True
                    break
                self._news.wait(_POLL_S)
            if self._done == self._requested:
                return
        cause = "it takes too long" if self._cause is None else self._cause.what
        cause = f"no answer for {_SILENT_S:.0f} s" if self._silent else cause
        raise StorageError(
            f"the last state of the run was not uploaded: {cause}",
            where=self._storage.uri,
            remedy=f"All of it is in {self._run_dir}; repeat with --resume and --storage",
        ) from self._cause

    def close(self) -> None:
        """Stop copying; may be called twice."""
        with self._news:
            already, self._closing = self._closing, True
            self._news.notify_all()
        if already:
            return
        if self._thread.is_alive():
            self._thread.join(0.0 if self._silent else RENEW_S)
        if not self._thread.is_alive():
            with suppress(StorageError):
                self._lease.release()

    def _work(self) -> None:
        """The thread: upload the state when there is news, and the status in between."""
        pause = _RETRY_S
        while True:
            with self._news:
                self._news.wait_for(lambda: self._closing or self._requested > self._done, RENEW_S)
                if self._closing:
                    return
                newest = self._requested
            known = self._known
            try:
                if newest > self._done:
                    self._sync(newest)
                elif CONFIG_FILE in known:
                    self._lease.confirm()
                    self._storage.upload(self._run_dir / STATUS_FILE, STATUS_FILE)
                pause = _RETRY_S
            except StorageError as error:
                if self._known is not known:  # there was progress
                    self._in_a_row, pause = 0, _RETRY_S
                self._fail(error)
                if self._lease.is_lost:
                    return
                with self._news:
                    self._news.wait_for(lambda: self._closing, pause)
                pause = min(2 * pause, _LONGEST_RETRY_S)

    def _sync(self, newest: int) -> None:
        """Upload the current state, which has all that was asked for so far."""
        started = time.perf_counter()
        retried = "Check the disk; the upload is retried"
        with (
            disk_errors(self._run_dir, "the run cannot be read", retried, StorageError),
            current_state(self._run_dir, self._known) as items,
        ):
            self._upload(items)
        self._upload_s = time.perf_counter() - started
        shown = round(self._upload_s, 3)
        self._log.write("storage_synced", files=len(items), upload_s=shown)
        with self._news:
            self._done, self._in_a_row, self._cause = newest, 0, None
            self._news.notify_all()

    def _upload(self, items: list[Item]) -> None:
        for item in items:
            if self._known.get(item.name) == item.signature or item.source is None:
                continue
            self._lease.confirm()
            self._note()
            if isinstance(item.source, bytes):
                self._storage.write(item.name, item.source)
            else:
                self._storage.upload(item.source, item.name, self._note)
            self._known = {**self._known, item.name: item.signature}
        self._remove(self._known.keys() - {item.name for item in items})

    def _note(self) -> None:
        """Note a sign of life of the storage."""
        self._alive = time.monotonic()

    def _remove(self, names: set[str]) -> None:
        for name in reversed(in_order(names)):
            self._lease.confirm()
            self._storage.delete(name)
            self._note()
            self._known = {key: value for key, value in self._known.items() if key != name}

    def _fail(self, error: StorageError) -> None:
        with self._news:
            self._failures += 1
            self._in_a_row += 1
            self._cause = error
            self._news.notify_all()
        self._log.write("storage_failed", "warning", cause=str(error), failures=self._failures)
        if self._in_a_row == _WARN_AFTER:
            _log.warning("uploads keep failing, training continues: %s", error)
