"""Sentence classification: TREC question types, and CR, MPQA and SUBJ by cross validation.

TREC has a training and a test file; a tenth of the training rows, by the seed, is the development
split. The other three are one file each: `fold` names the fold that is the test split. Folds
depend on the seed, so all folds must be prepared with the same one. Lines with a label but no
words (the circulating files have five) are left out and counted.
"""

from __future__ import annotations

__all__ = ["CR", "MPQA", "SUBJ", "TREC"]

from functools import partial
from typing import Literal

from rss_rl.components import Options
from rss_rl.data.corpora.cuts import FoldOptions, development_rows, fold_rows
from rss_rl.data.corpora.folders import source_files, source_folder
from rss_rl.data.corpora.labelled_lines import all_lines, class_of, labelled_lines, labelled_source
from rss_rl.data.sources import ReaderSource, SourceComponent, SourceRequest
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


class TrecOptions(Options):
    """Which labels are predicted."""

    labels: Literal["coarse", "fine"] = "coarse"
    """coarse: 6 types of questions; fine: 50."""


def _trec(request: SourceRequest, options: TrecOptions) -> ReaderSource:
    coarse = options.labels == "coarse"
    files = source_files(source_folder("trec", request, "train_5500.label"), _TREC_FILES)
    fine = tuple(f"{kind}:{part}" for kind, parts in _FINE.items() for part in parts.split())
    return labelled_source(
        "trec",
        files,
        tuple(_FINE) if coarse else fine,
        partial(labelled_lines, encoding="latin-1", class_of=_coarse if coarse else str),
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


def _folds(
    request: SourceRequest, options: FoldOptions, *, name: str, file: str, names: tuple[str, str]
) -> ReaderSource:
    """One fold of the file in the given folder."""
    split_files = dict.fromkeys(("train", "dev", "test"), file)
    classes = partial(class_of, dict(zip("01", names, strict=True)))
    return labelled_source(
        name,
        source_files(source_folder(name, request, file), split_files),
        names,
        partial(labelled_lines, encoding="cp1252", class_of=classes, empty_by_convention=True),
        partial(fold_rows, name=name, **options.model_dump(), seed=request.seed),
    )


TREC = SourceComponent(
    name="trec",
    help="TREC questions, 6 types (50 with --option labels=fine)",
    build=_trec,
    options=TrecOptions,
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
