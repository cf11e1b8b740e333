"""Sentence classification: TREC question types, and CR, MPQA and SUBJ by cross validation.

TREC has a training and a test file; a tenth of the training rows, by the seed, is the development
split. The other three are one file each: `fold` names the fold that is the test split. A fold
rests on the seed alone, so all folds must be prepared with one seed. Lines that have a label and
no words (five of the files as they go around) are left out and counted.
"""

from __future__ import annotations

__all__ = ["CR", "MPQA", "SUBJ", "TREC"]

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Literal

from pydantic import Field

from rss_rl.components import Options
from rss_rl.data.corpora.cuts import FoldOptions, Folds, development_rows
from rss_rl.data.corpora.labelled_lines import (
    LabelledLines,
    Line,
    all_lines,
    class_of,
    labelled_lines,
)
from rss_rl.data.corpora.options import source_files, source_folder
from rss_rl.data.sources import BadRow, SourceComponent, SourceRequest
from rss_rl.types import Array

_FINE = {
    "ABBR": "abb exp",
    "DESC": "def desc manner reason",
    "ENTY": "animal body color cremat currency dismed event food instru lang letter other plant "
    "product religion sport substance symbol techmeth termeq veh word",
    "HUM": "desc gr ind title",
    "LOC": "city country mount other state",
    "NUM": "code count date dist money ord other perc period speed temp volsize weight",
}
_TREC_FILES = {"train": "train_5500.label", "dev": "train_5500.label", "test": "TREC_10.label"}
_TREC_ENCODING = "latin-1"
_FOLD_ENCODING = "cp1252"


class TrecOptions(Options):
    """Which labels are predicted."""

    labels: Literal["coarse", "fine"] = Field(
        default="coarse", description="coarse: 6 types of questions; fine: 50."
    )


def _trec(request: SourceRequest, options: TrecOptions) -> LabelledLines:
    """TREC of the folder given.

    Raises:
        DataError: no such folder or file.
    """
    labels = options.labels
    files = source_files(source_folder("trec", request, "train_5500.label"), _TREC_FILES)
    fine = tuple(f"{coarse}:{part}" for coarse, parts in _FINE.items() for part in parts.split())
    return LabelledLines(
        "trec",
        files,
        fine if labels == "fine" else tuple(_FINE),
        str if labels == "fine" else _coarse,
        _trec_lines,
        partial(_of_split, seed=request.seed),
    )


def _of_split(split: str, rows: int, *, seed: int) -> Array:
    """bool [rows], True = in `split`."""
    if split == "test":
        return all_lines(split, rows)
    kept: Array = development_rows(rows, seed, "trec") == (split == "dev")
    return kept


def _coarse(label: str) -> str:
    return label.partition(":")[0]


def _trec_lines(split: str, path: Path) -> Iterator[Line | BadRow]:
    return labelled_lines(path, _TREC_ENCODING)


def _cr(request: SourceRequest, options: FoldOptions) -> LabelledLines:
    return _folds("cr", "custrev.all", ("negative", "positive"), request, options)


def _mpqa(request: SourceRequest, options: FoldOptions) -> LabelledLines:
    return _folds("mpqa", "mpqa.all", ("negative", "positive"), request, options)


def _subj(request: SourceRequest, options: FoldOptions) -> LabelledLines:
    return _folds("subj", "subj.all", ("subjective", "objective"), request, options)


def _folds(
    name: str, file: str, names: tuple[str, str], request: SourceRequest, options: FoldOptions
) -> LabelledLines:
    """One fold of the file in the folder given."""
    folds = Folds(name, options.fold, options.folds, request.seed)
    files = source_files(
        source_folder(name, request, file), dict.fromkeys(("train", "dev", "test"), file)
    )
    classes = dict(zip("01", names, strict=True))
    return LabelledLines(name, files, names, partial(class_of, classes), _fold_lines, folds.keep)


def _fold_lines(split: str, path: Path) -> Iterator[Line | BadRow]:
    return labelled_lines(path, _FOLD_ENCODING, empty_by_convention=True)


TREC = SourceComponent(
    name="trec",
    help="TREC questions, 6 types (50 with --option labels=fine)",
    build=_trec,
    options=TrecOptions,
    needs="--from FOLDER with train_5500.label, TREC_10.label",
    source="Li and Roth, COLING 2002",
)


CR = SourceComponent(
    name="cr",
    help="customer reviews, negative / positive, a fold of cross validation",
    build=_cr,
    options=FoldOptions,
    needs="--from FOLDER with custrev.all, --option fold=0 to 9",
    source="Hu and Liu, KDD 2004",
)


MPQA = SourceComponent(
    name="mpqa",
    help="opinion phrases, negative / positive, a fold of cross validation",
    build=_mpqa,
    options=FoldOptions,
    needs="--from FOLDER with mpqa.all, --option fold=0 to 9",
    source="Wiebe et al., LREC 2005",
)


SUBJ = SourceComponent(
    name="subj",
    help="sentences about films, subjective / objective, a fold of cross validation",
    build=_subj,
    options=FoldOptions,
    needs="--from FOLDER with subj.all, --option fold=0 to 9",
    source="Pang and Lee, ACL 2004",
)
