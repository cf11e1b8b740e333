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

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

from rss_rl.data.corpora.cuts import FoldOptions, cut_rows, fold_rows
from rss_rl.data.sources import (
    BadRow,
    RawExample,
    Row,
    Source,
    SourceComponent,
    SourceRequest,
    Words,
    files_in,
    read_folder,
)
from rss_rl.data.tables import AS_GIVEN, Record, ascii_words, count_lines, examples, read_lines
from rss_rl.types import Array, LabelSpec

Keep = Callable[[str, int], Array]
"""A split and the number of lines of its file to bool [lines], True = in the split."""


def split_lines(
    split: str, path: Path, keep: Keep | None, encoding: str = "utf-8-sig"
) -> Iterator[Record | BadRow]:
    """The lines of a file that are in a split; all of them without `keep`."""
    kept = None if keep is None else keep(split, count_lines(path))
    for line in read_lines(path, encoding):
        if kept is None or kept[line.row - 1]:
            yield line


def labelled_lines(
    split: str,
    path: Path,
    *,
    classes: Mapping[str, str],
    encoding: str = "utf-8-sig",
    keep: Keep | None = None,
    empty_by_convention: bool = False,
) -> Iterator[Row]:
    """Stream the sentences of a file; empty lines are skipped.

    Args:
        classes: the class of each label of the file, without what follows a colon there; an unknown
            label is not changed.
        encoding: of the file.
        keep: which lines are in the split; None: all.
        empty_by_convention: a label without words is left out, and is not an error.
    """

    def example(line: Record) -> Row:
        label, *words = ascii_words(line.values["line"])
        if not words:
            reason = "there are no words after the label"
            return line.bad(reason, AS_GIVEN, by_convention=empty_by_convention)
        name = label.partition(":")[0]
        return sentence(line, classes.get(name, name), Words(words))

    return examples(split_lines(split, path, keep, encoding), example)


def sentence(line: Record, label: str, words: Words, part: str = "") -> RawExample:
    """A sentence of a line; `part` distinguishes several of one line."""
    return line.example(f"{Path(line.file).name}-{line.row}{part}", (words,), label)


_KINDS = ("ABBR", "DESC", "ENTY", "HUM", "LOC", "NUM")
_TREC_FILES = {"train": "train_5500.label", "dev": "train_5500.label", "test": "TREC_10.label"}


def _read_trec(split: str, path: Path, *, seed: int) -> Iterator[Row]:
    keep = partial(cut_rows, name="trec", seed=seed)
    return labelled_lines(split, path, classes={}, encoding="latin-1", keep=keep)


def _folds(
    request: SourceRequest, options: FoldOptions, *, name: str, file: str, names: tuple[str, str]
) -> Source:
    """One fold of the file in the given folder."""
    files = files_in(request.folder(name, file), dict.fromkeys(("train", "dev", "test"), file))
    reader = partial(
        labelled_lines,
        classes=dict(zip("01", names, strict=True)),
        encoding="cp1252",
        keep=partial(fold_rows, name=name, **options.model_dump(), seed=request.seed),
        empty_by_convention=True,
    )
    return Source(name, 1, LabelSpec("classes", names=names), files, reader)


TREC = SourceComponent(
    name="trec",
    help="TREC questions, 6 types",
    build=read_folder(
        1, LabelSpec("classes", _KINDS), _TREC_FILES, _read_trec, name="trec", seeded=True
    ),
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
