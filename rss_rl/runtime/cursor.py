"""Where a run stands in its training data."""

from __future__ import annotations

__all__ = ["BatchCursor"]

from collections.abc import Mapping
from typing import Any

from rss_rl.data.order import BatchOrder
from rss_rl.types import Array


class BatchCursor:
    """How many batches of an order were consumed; that number is all its state.

    Args:
        order: the batches; it may be shared.
    """

    def __init__(self, order: BatchOrder) -> None:
        self.order = order
        self.batch = 0

    def rows(self, ahead: int = 0) -> Array:
        """Rows of the next batch, or of one further `ahead`, int64 [<= batch_size]."""
        return self.order.rows(self.batch + ahead)

    def advance(self) -> None:
        """Count the next batch as consumed."""
        self.batch += 1

    def state_dict(self) -> dict[str, Any]:
        """JSON-able state."""
        return {"batch": self.batch}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore `state_dict`."""
        self.batch = state["batch"]
