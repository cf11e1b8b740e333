"""`rss_rl.testing.check_source`, on sources that keep their promises and on some that do not."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rss_rl.data.corpora.planted import PLANTED, PLANTED_PAIRS
from rss_rl.data.corpora.sick import SICK_ENTAILMENT, SICK_RELATEDNESS
from rss_rl.data.sources import BadRow, RawExample, SourceComponent, SourceRequest
from rss_rl.errors import ComponentError
from rss_rl.testing import check_source
from rss_rl.types import LabelSpec

FEW = {"train": 5, "dev": 3, "test": 3}


@pytest.mark.parametrize("source", [PLANTED, PLANTED_PAIRS], ids=lambda source: source.name)
def test_made_sources_keep_their_promises(source: SourceComponent) -> None:
    check_source(source, SourceRequest(seed=3), FEW)


@pytest.mark.parametrize("source", [SICK_ENTAILMENT, SICK_RELATEDNESS], ids=lambda s: s.name)
def test_sources_of_files_keep_their_promises(source: SourceComponent, sick_folder: Path) -> None:
    check_source(source, SourceRequest(sick_folder))


class Small:
    """Two examples a split."""

    name, sentences = "small", 1

    def label_spec(self) -> LabelSpec | None:
        return LabelSpec("classes", ("no", "yes"))

    def splits(self) -> Mapping[str, tuple[Path, ...]]:
        return {"train": (), "dev": ()}

    def rows(self) -> list[Any]:
        words = ("a", "b")
        first = RawExample("1", (words,), "no", rationale=((True, False),))
        return [first, RawExample("2", ("c d",), "yes"), BadRow("f", 3, "is bad")]

    def read(self, split: str) -> Iterator[Any]:
        yield from self.rows()


class Changed(Small):
    """With its rows changed."""

    def __init__(self, change: Callable[[list[Any]], list[Any]]) -> None:
        self._change = change

    def read(self, split: str) -> Iterator[Any]:
        yield from self._change(self.rows())


def test_a_small_one_does() -> None:
    check_source(Small())


def other(**fields: Any) -> Callable[[list[Any]], list[Any]]:
    return lambda rows: [replace(rows[0], **fields), *rows[1:]]


calls = iter(range(100))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (other(id="2"), "an id twice"),
        (other(label="maybe"), "labels example '1' 'maybe'"),
        (other(texts=("a", "b"), rationale=None), "2 texts"),
        (other(rationale=((True,),)), "rationale of other length"),
        (other(texts=("a b",)), "rationale of other length"),
        (lambda rows: [rows[2]], "no example"),
        (lambda rows: [*rows[:2], BadRow("", 0, "bad")], "bad row without"),
        (lambda rows: rows[: 1 + next(calls) % 2], "otherwise"),
    ],
)
def test_broken_promises_are_named(change: Callable[[list[Any]], list[Any]], message: str) -> None:
    with pytest.raises(ComponentError, match=message):
        check_source(Changed(change))


def test_splits_and_their_files_must_be_there(tmp_path: Path) -> None:
    class Elsewhere(Small):
        def splits(self) -> Mapping[str, tuple[Path, ...]]:
            return {"train": (tmp_path / "none.csv",)}

    class Untrained(Small):
        def splits(self) -> Mapping[str, tuple[Path, ...]]:
            return {"dev": ()}

    with pytest.raises(ComponentError, match=r"names .*none\.csv"):
        check_source(Elsewhere())
    with pytest.raises(ComponentError, match="no split 'train'"):
        check_source(Untrained())
