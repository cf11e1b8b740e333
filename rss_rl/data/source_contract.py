"""Contract tests for sources; see `rss_rl.testing`."""

from __future__ import annotations

__all__ = ["check_source"]

import itertools
import math
from collections.abc import Mapping
from typing import Any

from rss_rl.data.sources import BadRow, RawExample, Source, SourceComponent, SourceRequest
from rss_rl.errors import ComponentError, DataError

_SPLITS = ("train", "dev", "test")


def check_source(
    source: SourceComponent | Source,
    request: SourceRequest | None = None,
    options: Mapping[str, Any] | None = None,
) -> None:
    """Check all that preparation relies on.

    The same rows at every call; ids that are unique within a split; texts, marks and rationales
    that fit each other; labels that fit what the source says is predicted; files that exist; bad
    rows that say where they are; rows that stream (a reader may stop after the first).

    Args:
        source: a component of kind `source`, or what it builds.
        request: where its files lie, and its seed. options: of the component.

    Raises:
        ComponentError: the first promise that it breaks, with what to do about it.
        ConfigError, DataError: options that do not do, or files that are not there.
    """
    built: Source = (
        source.build(request or SourceRequest(), source.parse(options or {}))
        if isinstance(source, SourceComponent)
        else source
    )
    checked = _Checked(built)
    checked.check_splits()
    for split in built.splits():
        checked.check_rows(split)


class _Checked:
    """A source that is asked."""

    def __init__(self, source: Source) -> None:
        self._source = source

    def _require(self, holds: bool, what: str, remedy: str) -> None:
        if not holds:
            where = getattr(self._source, "name", type(self._source).__name__)
            raise ComponentError(f"the source {what}", where=str(where), remedy=remedy)

    def check_splits(self) -> None:
        """Its name, its slots and its files."""
        name, sentences = self._source.name, self._source.sentences
        self._require(isinstance(name, str) and bool(name), "has no name", "Give it `name`")
        self._require(sentences in (1, 2), f"has {sentences!r} texts an example", "Give 1 or 2")
        splits = self._source.splits()
        unknown = sorted(set(splits) - set(_SPLITS))
        self._require(not unknown, f"has the split '{unknown[:1]}'", "Name train, dev and test")
        self._require("train" in splits, "has no split 'train'", "`splits` must have one")
        for split, files in splits.items():
            for file in files:
                self._require(file.exists(), f"names {file} for {split}", "Name files that exist")

    def check_rows(self, split: str) -> None:
        """Every row, twice; the first alone before."""
        first = list(itertools.islice(iter(self._source.read(split)), 1))
        rows, again = list(self._source.read(split)), list(self._source.read(split))
        self._require(rows == again, f"reads {split} otherwise again", "Draw from its seed alone")
        self._require(rows[:1] == first, f"begins {split} otherwise", "Let each `read` begin anew")
        examples = [row for row in rows if isinstance(row, RawExample)]
        self._require(bool(examples), f"has no example in {split}", "Yield RawExample")
        for row in rows:
            if isinstance(row, BadRow):
                told = bool(row.file) and row.row >= 1 and bool(row.reason)
                self._require(told, "has a bad row without file, row and reason", "Give all three")
            else:
                self._check_example(row)
        ids = [example.id for example in examples]
        self._require(len(set(ids)) == len(ids), f"has an id twice in {split}", "Count the rows")

    def _check_example(self, example: RawExample) -> None:
        kind = type(example).__name__
        self._require(isinstance(example, RawExample), f"yields a {kind}", "Yield RawExample")
        place = f"example {example.id!r:.60}"
        fits = len(example.texts) == self._source.sentences
        self._require(fits, f"has {len(example.texts)} texts in {place}", "See `sentences`")
        for name, marks in (("rationale", example.rationale or ()), ("marks", (example.marks,))):
            for text, bits in zip(example.texts, marks, strict=False):
                same = bits is None or (isinstance(text, tuple) and len(bits) == len(text))
                self._require(same, f"has {name} of other length in {place}", "One for each word")
        self._check_label(example.label, place)

    def _check_label(self, label: str | float, place: str) -> None:
        spec = self._source.label_spec()
        if spec is None or spec.kind == "classes":
            known = spec is None or not spec.names or label in spec.names
            self._require(known, f"labels {place} {label!r:.60}", "Name it in `label_spec`")
            return
        try:
            value = float(label)
        except ValueError as error:
            raise DataError(f"the label {label!r:.60} of {place} is no number") from error
        inside = math.isfinite(value) and (spec.kind != "score" or spec.low <= value <= spec.high)
        self._require(inside, f"gives {place} the score {value}", "See `label_spec`")
