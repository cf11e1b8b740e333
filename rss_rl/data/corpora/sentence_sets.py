"""Sentence classification: TREC question types, and CR, MPQA and SUBJ by cross validation.

TREC has a training and a test file; a tenth of the training rows, by the seed, is the development
split. The other three are one file each: `fold` names the fold that is the test split. A fold
rests on the seed alone, so all folds must be prepared with one seed. Lines that have a label and
no words (five of the files as they go around) are left out and counted.
"""

from __future__ import annotations

__all__ = ["cr", "mpqa", "subj", "trec"]

from collections.abc import Iterator
from pathlib import Path

from rss_rl.data.corpora.cuts import development_rows, fold_option
from rss_rl.data.corpora.labelled_lines import (
    LabelledLines,
    Line,
    all_lines,
    labelled_lines,
)
from rss_rl.data.corpora.options import choice_option, refuse_options, source_files, source_folder
from rss_rl.data.sources import BadRow, SourceRequest
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


def trec(request: SourceRequest) -> LabelledLines:
    """TREC of the folder given: 6 coarse classes, or 50 with the option labels=fine.

    Raises:
        DataError: no such folder or file, or another option.
    """
    refuse_options("trec", request, ("labels",))
    labels = choice_option(request.options, "labels", "coarse", "fine")
    files = source_files(source_folder("trec", request, "train_5500.label"), _TREC_FILES)
    fine = tuple(f"{coarse}:{part}" for coarse, parts in _FINE.items() for part in parts.split())

    def keep(split: str, rows: int) -> Array:
        if split == "test":
            return all_lines(split, rows)
        dev = development_rows(rows, request.seed, "trec")
        kept: Array = dev == (split == "dev")
        return kept

    def coarse(label: str) -> str:
        return label.partition(":")[0]

    return LabelledLines(
        "trec",
        files,
        fine if labels == "fine" else tuple(_FINE),
        str if labels == "fine" else coarse,
        lambda split, path: labelled_lines(path, _TREC_ENCODING),
        keep,
    )


def cr(request: SourceRequest) -> LabelledLines:
    """Customer reviews, one fold."""
    return _folds("cr", "custrev.all", ("negative", "positive"), request)


def mpqa(request: SourceRequest) -> LabelledLines:
    """Opinion polarity of phrases, one fold."""
    return _folds("mpqa", "mpqa.all", ("negative", "positive"), request)


def subj(request: SourceRequest) -> LabelledLines:
    """Subjective or objective sentences about films, one fold."""
    return _folds("subj", "subj.all", ("subjective", "objective"), request)


def _folds(name: str, file: str, names: tuple[str, str], request: SourceRequest) -> LabelledLines:
    refuse_options(name, request, ("fold", "folds"))
    folds = fold_option(name, request.options, request.seed)
    files = source_files(
        source_folder(name, request, file), dict.fromkeys(("train", "dev", "test"), file)
    )
    classes = dict(zip("01", names, strict=True))

    def read(split: str, path: Path) -> Iterator[Line | BadRow]:
        return labelled_lines(path, _FOLD_ENCODING, empty_by_convention=True)

    return LabelledLines(
        name, files, names, lambda label: classes.get(label, label), read, folds.keep
    )
