"""A text as pieces for a page: kept and marked words, with long stretches of others cut."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import NamedTuple

import numpy as np

from rss_rl.results.reading import ReadText
from rss_rl.types import Array

_AROUND = 6
"""Words shown before and after a cut."""
_SHORTEST_CUT = 8
_MOST_WORDS = 260


class Piece(NamedTuple):
    """A stretch of words of the same kind; for a cut, `text` is the number of words."""

    text: str
    kept: bool = False
    marked: bool = False
    cut: bool = False

    @property
    def words(self) -> int:
        """Number of words, shown or cut."""
        return int(self.text) if self.cut else self.text.count(" ") + 1


def marked_text(text: ReadText, slot: int) -> list[Piece]:
    """The pieces of a sentence."""
    words, kept = text.words[slot], text.kept[slot]
    marked = np.zeros_like(kept) if text.marked is None else text.marked[slot]
    pieces: list[Piece] = []
    for piece in _pieces(words, kept, marked):
        shown = sum(p.words for p in pieces if not p.cut)
        if not piece.cut and shown + piece.words > _MOST_WORDS:
            return [*pieces, Piece(str(len(words) - sum(p.words for p in pieces)), cut=True)]
        pieces.append(piece)
    return pieces


def _pieces(words: tuple[str, ...], kept: Array, marked: Array) -> Iterator[Piece]:
    place = 0
    alike = (2 * kept + marked).tolist()
    for kind, run in groupby(zip(words, alike, strict=True), lambda word: word[1]):
        own = [word for word, _ in run]
        before = _AROUND if place else 0
        after = _AROUND if place + len(own) < len(words) else 0
        cut = len(own) - before - after
        if kind or cut < _SHORTEST_CUT:
            yield Piece(" ".join(own), kept=kind >= 2, marked=bool(kind % 2))
        else:
            if before:
                yield Piece(" ".join(own[:before]))
            yield Piece(str(cut), cut=True)
            if after:
                yield Piece(" ".join(own[-after:]))
        place += len(own)
