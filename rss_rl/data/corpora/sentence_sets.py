"""Sentence classification: TREC question types, and CR, MPQA and SUBJ by cross validation.

A line is a tokenised sentence: `<label> <word> <word> ...`. Only ASCII white space separates words:
some files have bytes of Windows-1252 that Unicode counts as white space, among them 0x85, which is
an ellipsis and does not end a line.

TREC has a training and a test file; a tenth of the training rows, by the seed, is the development
split. The other three are one file each: `fold` names the fold that is the test split. Folds
depend on the seed, so all folds must be prepared with the same one. Lines with a label but no
words (the circulating files have five) are left out and counted.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

import numpy as np

from rss_rl.components import NoOptions
from rss_rl.data.corpora.cuts import FoldOptions, development_rows, fold_rows
from rss_rl.data.sources import (
    BadRow,
    RawExample,
    Row,
    Source,
    SourceComponent,
    SourceRequest,
    Words,
    files_in,
)
from rss_rl.durable import disk_errors
from rss_rl.errors import DataError
from rss_rl.types import Array, LabelSpec

Keep = Callable[[str, int], Array]
"""A split and the number of lines of its file to bool [lines], True = in the split."""


def labelled_lines(
    split: str,
    path: Path,
    *,
    encoding: str,
    classes: Mapping[str, str],
    keep: Keep | None = None,
    empty_by_convention: bool = False,
) -> Iterator[Row]:
    """Stream the sentences of a file; empty lines are skipped.

    Args:
        encoding: one that uses the bytes of ASCII white space for nothing else.
        classes: the class of each label of the file, without what follows a colon there; an unknown
            label is not changed.
        keep: which lines are in the split; None: all.
        empty_by_convention: a label without words is left out, and is not an error.
    """
    kept = None if keep is None else keep(split, count_lines(path))
    with path.open("rb") as stream:
        for row, raw in enumerate(stream, start=1):
            parts = (raw.removeprefix(codecs.BOM_UTF8) if row == 1 else raw).split()
            if not parts or not (kept is None or kept[row - 1]):
                continue
            try:
                label, *words = [part.decode(encoding) for part in parts]
            except UnicodeDecodeError:
                yield bad_line(path, row, raw, f"bytes that are not {encoding}")
                continue
            if words:
                name = label.partition(":")[0]
                yield sentence(path, row, classes.get(name, name), Words(words))
            else:
                reason = "there are no words after the label"
                yield bad_line(path, row, raw, reason, by_convention=empty_by_convention)


def sentence(path: Path, row: int, label: str, words: Words, part: str = "") -> RawExample:
    """A sentence of a line; `part` distinguishes several of one line."""
    return RawExample(f"{path.name}-{row}{part}", (words,), label, file=str(path), row=row)


def bad_line(
    path: Path, row: int, raw: bytes, reason: str, *, by_convention: bool = False
) -> BadRow:
    """A line that cannot be used."""
    content = raw.decode("utf-8", "backslashreplace").rstrip("\r\n")
    return BadRow(
        str(path), row, reason, "Use the file as its authors give it", content, by_convention
    )


def count_lines(path: Path) -> int:
    """Number of lines of a file, including empty ones.

    Raises:
        DataError: it cannot be read.
    """
    with (
        disk_errors(path, "cannot be read", "Check the file", DataError),
        path.open("rb") as stream,
    ):
        return sum(1 for _ in stream)


_KINDS = ("ABBR", "DESC", "ENTY", "HUM", "LOC", "NUM")
_TREC_FILES = {"train": "train_5500.label", "dev": "train_5500.label", "test": "TREC_10.label"}


def _trec(request: SourceRequest, options: NoOptions) -> Source:
    files = files_in(request.folder("trec", "train_5500.label"), _TREC_FILES)
    keep = partial(_of_split, seed=request.seed)
    reader = partial(labelled_lines, encoding="latin-1", classes={}, keep=keep)
    return Source("trec", 1, LabelSpec("classes", names=_KINDS), files, reader)


def _of_split(split: str, rows: int, *, seed: int) -> Array:
    """bool [rows], True = in `split`."""
    if split == "test":
        return np.ones(rows, dtype=bool)
    kept: Array = development_rows(rows, seed, "trec") == (split == "dev")
    return kept


def _folds(
    request: SourceRequest, options: FoldOptions, *, name: str, file: str, names: tuple[str, str]
) -> Source:
    """One fold of the file in the given folder."""
    files = files_in(request.folder(name, file), dict.fromkeys(("train", "dev", "test"), file))
    reader = partial(
        labelled_lines,
        encoding="cp1252",
        classes=dict(zip("01", names, strict=True)),
        keep=partial(fold_rows, name=name, **options.model_dump(), seed=request.seed),
        empty_by_convention=True,
    )
    return Source(name, 1, LabelSpec("classes", names=names), files, reader)


TREC = SourceComponent(
    name="trec",
    help="TREC questions, 6 types",
    build=_trec,
    needs="--from FOLDER with train_5500.label, TREC_10.label",
    source="Li and Roth, COLING 2002",
)


def _folded(
    name: str, help: str, file: str, names: tuple[str, str], source: str
) -> SourceComponent:
    return SourceComponent(
        name=name,
        help=f"{help}, a fold of cross validation",
        build=partial(_folds, name=name, file=file, names=names),
        options=FoldOptions,
        needs=f"--from FOLDER with {file}, --option fold=0 to 9",
        source=source,
    )


_SENTIMENT = ("negative", "positive")
CR = _folded(
    name="cr",
    help="customer reviews, negative / positive",
    file="custrev.all",
    names=_SENTIMENT,
    source="Hu and Liu, KDD 2004",
)
MPQA = _folded(
    name="mpqa",
    help="opinion phrases, negative / positive",
    file="mpqa.all",
    names=_SENTIMENT,
    source="Wiebe et al., LREC 2005",
)
SUBJ = _folded(
    name="subj",
    help="sentences about films, subjective / objective",
    file="subj.all",
    names=("subjective", "objective"),
    source="Pang and Lee, ACL 2004",
)
