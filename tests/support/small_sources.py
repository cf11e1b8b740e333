"""Sources that keep their promises and some that break one, which another process can import."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rss_rl.data.sources import BadRow, RawExample, SourceComponent
from rss_rl.types import LabelSpec

_CLASSES = LabelSpec("classes", ("no", "yes"))
_calls = itertools.count()


@dataclass(frozen=True)
class Small:
    """Two examples a split and a bad row; `changed` are fields of the first that are otherwise."""

    changed: tuple[tuple[str, Any], ...] = ()
    spec: LabelSpec | None = _CLASSES
    more: tuple[Any, ...] = (BadRow("f", 3, "is bad"),)
    files: tuple[Path, ...] = ()
    name: Any = "small"
    sentences: Any = 1

    def label_spec(self) -> LabelSpec | None:
        return self.spec

    def splits(self) -> Mapping[str, tuple[Path, ...]]:
        return {"train": self.files, "dev": self.files}

    def rows(self) -> list[Any]:
        first = RawExample("1", (("a", "b"),), "no", rationale=((True, False),))
        return [replace(first, **dict(self.changed)), RawExample("2", ("c d",), "yes"), *self.more]

    def read(self, split: str) -> Iterator[Any]:
        yield from self.rows()


class Empty(Small):
    def rows(self) -> list[Any]:
        return list(self.more)


class Changing(Small):
    """Another number of rows at every other call."""

    def read(self, split: str) -> Iterator[Any]:
        yield from self.rows()[: 1 + next(_calls) % 2]


class Sharing(Small):
    """One file for all readers, as it were."""

    def __init__(self) -> None:
        super().__init__()
        object.__setattr__(self, "left", {})

    def read(self, split: str) -> Iterator[Any]:
        left = self.left  # type: ignore[attr-defined]
        left[split] = left.get(split) or self.rows()
        while left[split]:
            yield left[split].pop(0)


class Listing(Small):
    def read(self, split: str) -> Any:
        return self.rows()


class OtherSplits(Small):
    def splits(self) -> Mapping[str, tuple[Path, ...]]:
        return {"dev": ()} if self.name == "untrained" else {"train": (), "valid": ()}


@dataclass(frozen=True)
class Lines(Small):
    """Long lines of a file, streamed or held."""

    held: bool = False

    def read(self, split: str) -> Iterator[Any]:
        (path,) = self.files
        with path.open() as file:
            lines = file.readlines() if self.held else file
            for row, _ in enumerate(lines, start=1):
                label = ("no", "yes")[row % 2]
                yield RawExample(str(row), ("c d",), label, file=str(path), row=row)


class Locked(Small):
    """Has what cannot be pickled."""

    def __init__(self) -> None:
        super().__init__()
        object.__setattr__(self, "function", lambda: None)


class Homebound(Small):
    """Reads otherwise where it was unpickled."""

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, changed=(("label", "yes"),))


class Stranded(Small):
    """Cannot be read where it was unpickled."""

    def __setstate__(self, state: dict[str, Any]) -> None:
        raise OSError("no such database")


class Heavy(Small):
    """Imports torch."""

    def read(self, split: str) -> Iterator[Any]:
        import torch  # noqa: F401

        yield from self.rows()


def component(*capabilities: str, **fields: Any) -> SourceComponent:
    """The small source, declared with these capabilities."""
    return SourceComponent(
        name="small",
        help="Two examples.",
        build=lambda request, options: Small(**fields),
        capabilities=frozenset(capabilities),
    )
