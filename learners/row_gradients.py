"""Shared by the optimisers that update embedding tables row by row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from torch import Tensor


@contextmanager
def set_aside(tables: Sequence[Tensor]) -> Iterator[None]:
    """Hide the gradients of these tables while torch's optimiser updates the other parameters."""
    gradients = [table.grad for table in tables]
    for table in tables:
        table.grad = None
    try:
        yield
    finally:
        for table, gradient in zip(tables, gradients, strict=True):
            table.grad = gradient
