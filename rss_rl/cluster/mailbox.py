"""The newest snapshot for a sampler in its own process, which arrives while it works."""

from __future__ import annotations

import threading

import ray
from ray.exceptions import GetTimeoutError

from rss_rl.rollouts.published import Snapshot, StoredSnapshot

MAIL = "mail"
"""The concurrency group of an actor, one thread, in which snapshots arrive."""


def joined(state: StoredSnapshot, later: StoredSnapshot) -> StoredSnapshot:
    """A snapshot with the deltas of both, to be loaded in this order.

    A whole delta replaces all earlier ones of its part; deltas of rows are added to it.
    """
    replaced = {delta.part for delta in later.deltas if delta.whole}
    kept = tuple(delta for delta in state.deltas if delta.part not in replaced)
    return StoredSnapshot(later.version, kept + later.deltas, later.charged)


class Mailbox:
    """Takes snapshots in one thread, and gives what arrived in another.

    Args:
        timeout_s: longest wait for a snapshot, and for its weights.
    """

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._arrived = threading.Condition()
        self._number = 0
        self._snapshot = StoredSnapshot(-1, ())  # with the deltas since the last `take`

    def put(self, number: int, snapshot: StoredSnapshot) -> None:
        """Add a snapshot, which is the publication of this number; in their order."""
        with self._arrived:
            self._number, self._snapshot = number, joined(self._snapshot, snapshot)
            self._arrived.notify_all()

    def take(self, number: int) -> Snapshot:
        """The newest snapshot, with the changes since the last call; waits for this publication.

        Raises:
            RayError: it did not arrive in time, or its weights cannot be fetched; the next call
                would lack them.
        """
        with self._arrived:
            if not self._arrived.wait_for(lambda: self._number >= number, self._timeout_s):
                raise GetTimeoutError(f"publication {number} did not arrive")
            found = self._snapshot
            self._snapshot = StoredSnapshot(found.version, (), found.charged)
        references = list(dict.fromkeys(delta.reference for delta in found.deltas))
        fetched = ray.get(references, timeout=self._timeout_s)
        bundles = dict(zip(references, fetched, strict=True))
        deltas = tuple(bundles[delta.reference][delta.place] for delta in found.deltas)
        return Snapshot(found.version, deltas, found.charged)
