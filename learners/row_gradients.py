"""What optimisers that update tables by row have in common."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from torch import Tensor


@contextmanager
def set_aside(tables: Sequence[Tensor]) -> Iterator[None]:
    """Take the gradients of tables away while an optimiser of torch's updates the others."""
    gradients = [table.grad for table in tables]
    for table in tables:
        table.grad = None
    try:
        yield
    finally:
        for table, gradient in zip(tables, gradients, strict=True):
            table.grad = gradient
