"""A run on a storage path: claimed, restored from it, and copied to it while it is trained.

One process at a time writes to a path. What is there is a run directory like the local one, but for
the lock: it can be copied back by other means too.
"""

from __future__ import annotations

__all__ = ["NullMirror", "RunMirror", "open_mirror"]

from contextlib import suppress
from pathlib import Path
from typing import Protocol

from rss_rl.config import RunConfig
from rss_rl.errors import StorageError
from rss_rl.logs.events import EventSink
from rss_rl.mirror.lease import Lease
from rss_rl.mirror.restore import continue_from, refuse_foreign, refuse_present
from rss_rl.mirror.worker import Mirror, Patience
from rss_rl.storage import open_storage


class RunMirror(Protocol):
    """Keeps a copy of a run elsewhere."""

    def start(self, log: EventSink) -> None:
        """Begin to keep the copy; failures go to `log`."""

    def changed(self) -> None:
        """There is a new checkpoint; does not wait, does not raise."""

    def scalars(self) -> dict[str, float]:
        """How the copying goes, by metric tag."""

    def finish(self) -> None:
        """Copy what there is now, and wait for it; raises StorageError where that fails."""

    def close(self) -> None:
        """Stop copying; may be called twice."""


class NullMirror:
    """No copy."""

    def start(self, log: EventSink) -> None:
        """See `RunMirror`."""

    def changed(self) -> None:
        """See `RunMirror`."""

    def scalars(self) -> dict[str, float]:
        """See `RunMirror`."""
        return {}

    def finish(self) -> None:
        """See `RunMirror`."""

    def close(self) -> None:
        """See `RunMirror`."""


def open_mirror(
    place: str | None,
    run_dir: Path,
    config: RunConfig,
    resume: bool,
    overwrite: bool,
    take_over: bool = False,
    *,
    patience: Patience | None = None,
) -> RunMirror:
    """Claim a storage path for a run, and restore the run from it where that is wanted.

    Args:
        place: URI or local path; None for no mirror.
        resume: go on with what the storage holds. overwrite: it goes. Neither: it must hold none.
        take_over: take the path from a writer that seems alive. Without it `resume` waits for one
            that may have died a moment ago, for two minutes at most.
        patience: how long the mirror waits.

    Raises:
        StorageError: it refuses, or another process writes there.
        CheckpointError: what it holds cannot be gone on with.
    """
    if place is None:
        return NullMirror()
    storage = open_storage(place)
    patience = patience or Patience()
    lease = Lease(storage, take_over=take_over, wait=resume)
    restored = None
    try:
        refuse_foreign(storage)
        if resume:
            with lease.kept(patience.renew_s):
                resolved = config.model_dump(mode="json")
                restored = continue_from(storage, run_dir, resolved, lease.check)
        elif not overwrite:
            refuse_present(storage)
    except BaseException:
        with suppress(StorageError):
            lease.release()
        raise
    return Mirror(storage, run_dir, lease, keep=resume, restored=restored, patience=patience)
