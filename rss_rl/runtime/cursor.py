"""Where a run stands in its training data."""

from __future__ import annotations

__all__ = ["EpochCursor"]

from collections.abc import Mapping
from typing import Any

from rss_rl.data.batching import epoch_batches
from rss_rl.errors import CheckpointError
from rss_rl.types import Array


class EpochCursor:
    """The batches of epoch after epoch; its state is two numbers.

    Args:
        lengths: int64 [n, S] of the training split.
    """

    def __init__(self, lengths: Array, batch_size: int, seed: int) -> None:
        self._lengths, self._batch_size, self._seed = lengths, batch_size, seed
        self._epoch, self._position = 0, 0
        self._batches: list[Array] | None = None

    def next(self) -> Array:
        """Rows of the next batch, int64 [<= batch_size]."""
        if self._batches is None:
            self._batches = epoch_batches(self._lengths, self._batch_size, self._seed, self._epoch)
        if self._position >= len(self._batches):
            raise CheckpointError(
                f"there is no batch {self._position} in an epoch of {len(self._batches)}",
                remedy="Resume from another checkpoint, with the data the run was started with",
            )
        rows = self._batches[self._position]
        self._position += 1
        if self._position == len(self._batches):
            self._epoch, self._position, self._batches = self._epoch + 1, 0, None
        return rows

    def state_dict(self) -> dict[str, Any]:
        """JSON-able state."""
        return {"epoch": self._epoch, "position": self._position}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore `state_dict`.

        Raises:
            ValueError, KeyError: it is none.
        """
        for name in ("epoch", "position"):
            if type(state[name]) is not int or not 0 <= state[name] < 2**63:
                raise ValueError(f"{name} {state[name]!r:.50}")
        self._epoch, self._position, self._batches = state["epoch"], state["position"], None
