"""The benchmarks of `make bench`, in their order."""

from __future__ import annotations

__all__ = ["BENCHMARKS", "Benchmark"]

import importlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import cast

from suite.records import Record
from suite.timing import Settings

Measure = Callable[[Settings], Iterator[Record]]


@dataclass(frozen=True)
class Benchmark:
    """A function that yields records, run in a process of its own.

    target   `module:function`, imported in that process alone; module under tests/benchmarks
    minutes  after which it is ended; what it has yielded by then counts
    """

    target: str
    minutes: float

    def load(self) -> Measure:
        """The function."""
        module, _, name = self.target.partition(":")
        return cast(Measure, getattr(importlib.import_module(module), name))


BENCHMARKS: dict[str, Benchmark] = {
    "reading": Benchmark("reading:reading", minutes=3),
    "step": Benchmark("suite.training_step:training_step", minutes=3.5),
    "attention": Benchmark("attention:attention", minutes=3),
}
