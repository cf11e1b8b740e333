"""A metric of whole columns: it collects what batches hold, and measures all of it at the end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from rss_rl.metrics.protocol import Scored
from rss_rl.types import Array


@dataclass
class ColumnMetric:
    """See `Metric`.

    columns  arrays [B] of a batch; empty if it has none
    measure  of the joined columns
    """

    names: tuple[str, ...]
    columns: Callable[[Scored], tuple[Array, ...]]
    measure: Callable[..., dict[str, float]]
    _found: list[tuple[Array, ...]] = field(default_factory=list)

    def add(self, scored: Scored) -> None:
        """See `Metric`."""
        if found := self.columns(scored):
            self._found.append(found)

    def result(self) -> dict[str, float]:
        """See `Metric`; empty without a batch."""
        if not self._found:
            return {}
        return self.measure(*map(np.concatenate, zip(*self._found, strict=True)))


def predictions(scored: Scored) -> tuple[Array, Array]:
    """Predicted and gold labels."""
    assert scored.predicted is not None
    return scored.predicted, scored.batch.labels
