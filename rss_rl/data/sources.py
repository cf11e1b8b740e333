"""What a source of examples is, and the sources known by name.

A source streams the examples of its splits; it never holds a file in memory. `prepare` tokenises,
checks and stores them; a source only has to say where each row came from.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from rss_rl.components import EVERYTHING, Component, Kind, Trust, component_names, find_component
from rss_rl.config import parse_value
from rss_rl.errors import ConfigError, DataError
from rss_rl.types import LabelSpec

Progress = Callable[[str, int, int | None], None]
"""Called with the activity, how far it is, and its end (None: unknown)."""
_log = logging.getLogger("rss_rl.data")

MOST_ANNOTATORS = 31
"""Bits of a stored token for annotators."""

Text = str | tuple[str, ...]
"""One sentence: a str is tokenised, a tuple holds given tokens, which are kept as they are, and
`Words` are given tokens that are looked up like the words of a tokenised text."""


class Words(tuple[str, ...]):
    """Words of a text that its authors or a source tokenised: kept as they are, but lower-cased for
    the vocabulary like those of a tokenised text.
    """

    __slots__ = ()


def checked_text(value: object, where: str, more: str = "") -> Text:
    """A text that somebody gave: a str, a tuple of words, or a list of them, which becomes a tuple.

    Args:
        where: of the text. more: end of the remedy.

    Raises:
        DataError: it is something else.
    """
    words = value if isinstance(value, tuple | list) else ()
    if not isinstance(value, str | tuple | list) or not all(isinstance(w, str) for w in words):
        kind = "nothing" if value is None else f"{value!r:.40} ({type(value).__name__})"
        raise DataError(
            f"is {kind}, where a text is expected",
            where=where,
            remedy=f"Give a str, or a tuple of words{more}",
        )
    return tuple(value) if isinstance(value, list) else value


@dataclass(frozen=True)
class RawExample:
    """One example as in its file.

    id         unique within its split
    texts      one Text for each sentence slot (1 or 2)
    label      name of the class, the score, or the number of the right sentence or candidate
    rationale  for each slot one bool for each given token, True = the label follows from it
    file, row  where it was read, for messages: line of a text file (first = 1), row of a Parquet
               file (first = 1); left out by sources that generate their examples
    marks      where the label is a sentence or a candidate: for each given token of slot 0 the
               number of its sentence or candidate, from 0, or -1 for none (see `Batch`)
    question   identifies the question where several examples answer the same one
    annotations  for each given token of slot 0 a number whose bit k says that annotator k marked it
    columns    of a table, for messages: names of the columns of its texts and of its label
    weight     how often the example counts in training, > 0
    """

    id: str
    texts: tuple[Text, ...]
    label: str | float
    rationale: tuple[tuple[bool, ...], ...] | None = None
    file: str = ""
    row: int = 0
    marks: tuple[int, ...] | None = None
    question: str | None = None
    annotations: tuple[int, ...] | None = None
    columns: tuple[str, ...] = ()
    weight: float | None = None


@dataclass(frozen=True)
class BadRow:
    """A row that cannot be used: where, why, a remedy, and its content for the rejects file.

    by_convention: the format itself says to leave such rows out (SNLI's '-' labels); they are
    counted and never an error.
    """

    file: str
    row: int
    reason: str
    remedy: str = ""
    content: str = ""
    by_convention: bool = False

    def error(self) -> DataError:
        """The error to raise for this row when bad rows are not skipped."""
        where = f"{self.file}, row {self.row}"
        skip = "Or leave such rows out with --skip-bad-rows"
        return DataError(
            self.reason, where=where, remedy=f"{self.remedy}. {skip}" if self.remedy else skip
        )


Row = RawExample | BadRow
"""What a source streams."""


@dataclass(frozen=True)
class Source:
    """Where the examples of one dataset come from.

    name       short name for the manifest
    sentences  sentence slots an example has, 1 or 2
    labels     what is predicted; None: classes, named by the training labels. A score with low =
               -inf and high = inf takes its range from the training split
    splits     files of each split (none for generated examples); 'train' must be among the splits
    reader     `reader(split, *files)` streams a split, the same rows in the same order at every
               call
    columns    of a table: those of the texts, then of the label
    """

    name: str
    sentences: int
    labels: LabelSpec | None
    splits: Mapping[str, tuple[Path, ...]]
    reader: Callable[..., Iterator[Row]]
    columns: tuple[str, ...] = ()

    def read(self, split: str) -> Iterator[Row]:
        """Stream one split."""
        return self.reader(split, *self.splits[split])


@dataclass(frozen=True)
class SourceRequest:
    """The user's arguments for a named source.

    path     file or folder given with --from, or None
    seed     of sources that generate or split their examples
    options  further settings as NAME=VALUE strings (--option), which its component reads
    """

    path: Path | None = None
    seed: int = 0
    options: Mapping[str, str] = field(default_factory=dict)

    def folder(self, name: str, example: str) -> Path:
        """The folder that the source `name` is read from; `example` is a file that is in it.

        Raises:
            DataError: none is given.
        """
        if self.path is None or not self.path.is_dir():
            raise DataError(
                f"{name} is read from a folder",
                where=str(self.path or ""),
                remedy=f"Give the folder with {example} as --from",
            )
        return self.path

    def without_folder(self, why: str) -> None:
        """Refuse a folder, which the source does not read.

        Raises:
            DataError: one is given; `why` says that it is not needed.
        """
        if self.path is not None:
            raise DataError(why, where=str(self.path), remedy="Leave out --from")


def _names(names: str | tuple[str, ...]) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else names


def files_in(
    folder: Path, names: Mapping[str, str | tuple[str, ...]]
) -> dict[str, tuple[Path, ...]]:
    """The files, or folders, of each split, which must be in `folder`.

    Raises:
        DataError: one is missing.
    """
    files = {split: tuple(folder / name for name in _names(part)) for split, part in names.items()}
    for path in (path for paths in files.values() for path in paths):
        if not path.exists():
            raise DataError(
                f"there is no {path.name}",
                where=str(folder),
                remedy="Unpack the files there as their authors name them, or name another --from",
            )
    return files


def read_folder(
    sentences: int,
    labels: LabelSpec,
    files: Mapping[str, str | tuple[str, ...]],
    read: Callable[..., Iterator[Row]],
    *,
    name: str,
    inner: str = "",
    seeded: bool = False,
) -> Callable[[SourceRequest, Any], Source]:
    """The `build` of a source whose splits are files of fixed names in a folder.

    Args:
        sentences, labels: see `Source`. files: of each split.
        read: called with a split and its files and, if `seeded`, the seed of the request.
        inner: folder in that of the request which is read in its place if it is there.
    """

    def build(request: SourceRequest, options: Any) -> Source:
        folder = request.folder(name, ", ".join(_names(files["train"])))
        folder = folder / inner if (folder / inner).is_dir() else folder
        reader = partial(read, seed=request.seed) if seeded else read
        return Source(name, sentences, labels, files_in(folder, files), reader)

    return build


@dataclass(frozen=True, kw_only=True)
class SourceComponent(Component):
    """A source as its own file declares it: `build(request, options)` returns a `Source`, or raises
    a DataError if the folder, a file of it or an option cannot be used.

    needs  its arguments for `rss-rl data prepare`, such as --from FOLDER with its files
    """

    kind: Kind = "source"
    needs: str = ""


def known_sources() -> dict[str, SourceComponent]:
    """The installed sources by name; one that cannot be imported is left out, with a warning."""
    sources = {}
    for name in component_names("source"):
        try:
            sources[name] = _source_component(name)
        except ConfigError as error:
            _log.warning("%s", error)
    return sources


def named_source(name: str, request: SourceRequest, trust: Trust = EVERYTHING) -> Source:
    """Build the source called `name`, an installed one or `package.module:OBJECT`.

    Args:
        trust: which names of the second form may be imported.

    Raises:
        DataError: no such source, or options that it does not have.
    """
    try:
        component = _source_component(name, trust)
        options = component.parse(_values(component, request.options))
    except ConfigError as error:
        where = error.where or f"source {name:.200}"
        raise DataError(error.what, where=where, remedy=error.remedy) from error
    source: Source = component.build(request, options)
    return source


def _source_component(name: str, trust: Trust = EVERYTHING) -> SourceComponent:
    component = find_component("source", name, trust)
    if not isinstance(component, SourceComponent):
        raise ConfigError(
            f"'{name:.200}' is declared as a Component",
            remedy="Declare it as rss_rl.data.sources.SourceComponent",
        )
    return component


def _values(component: Component, options: Mapping[str, Any]) -> dict[str, Any]:
    """Command-line options parsed as YAML values, except those of type str."""
    fields = component.options.model_fields
    texts = {name for name, field in fields.items() if field.annotation is str}
    return {
        option: parse_value(text, where=f"option {option}")
        if isinstance(text, str) and option not in texts
        else text
        for option, text in options.items()
    }
