"""The Stanford Sentiment Treebank: five classes (sst-1), or two without the neutral (sst-2).

Reads files of sentences (stsa.fine.train and so on, `<label> <words>`), or the treebank itself
(train.txt, dev.txt, test.txt: one tree per line). For trees, the option phrases=yes makes every
labelled phrase of the training split an example, as in the training behind the published figures.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

from rss_rl.components import Options
from rss_rl.data.corpora.sentence_sets import labelled_lines, sentence
from rss_rl.data.sources import BadRow, Row, Source, SourceComponent, SourceRequest, Words, files_in
from rss_rl.data.tables import AS_GIVEN, read_lines
from rss_rl.errors import DataError
from rss_rl.types import LabelSpec

_FIVE = ("very negative", "negative", "neutral", "positive", "very positive")
_TWO = ("negative", "positive")
_NEUTRAL = "2"
_TREE_CLASSES = {
    _FIVE: {str(i): name for i, name in enumerate(_FIVE)},
    _TWO: {"0": "negative", "1": "negative", "3": "positive", "4": "positive"},
}
_TREE_FILES = {"train": "train.txt", "dev": "dev.txt", "test": "test.txt"}
_PIECE = re.compile(r"[()]|[^\s()]+")
_BRACKETS = {"-LRB-": "(", "-RRB-": ")"}


class SstOptions(Options):
    """Options of the treebank."""

    phrases: bool = False
    """Train on the phrases of the trees, too."""


def _build(
    request: SourceRequest, options: SstOptions, *, name: str, names: tuple[str, ...]
) -> Source:
    """SST; with two classes, the treebank's neutral sentences are left out."""
    kind = "fine" if names is _FIVE else "binary"
    folder = request.folder(name, f"stsa.{kind}.train or train.txt")
    lines = {split: f"stsa.{kind}.{split}" for split in _TREE_FILES}
    of_trees = (folder / _TREE_FILES["train"]).is_file() and not (folder / lines["train"]).is_file()
    if options.phrases and not of_trees:
        raise DataError(
            "only the trees have phrases",
            where=str(folder),
            remedy="Give the folder with the treebank's train.txt as --from",
        )
    labels = LabelSpec("classes", names=names)
    if of_trees:
        reader = partial(_trees, classes=_TREE_CLASSES[names], phrases=options.phrases)
        return Source(name, 1, labels, files_in(folder, _TREE_FILES), reader)
    classes = {str(i): each for i, each in enumerate(names)}
    return Source(
        name, 1, labels, files_in(folder, lines), partial(labelled_lines, classes=classes)
    )


def _trees(split: str, path: Path, *, classes: Mapping[str, str], phrases: bool) -> Iterator[Row]:
    for line in read_lines(path):
        if isinstance(line, BadRow):
            yield line
            continue
        try:
            every = tree_phrases(line.values["line"])
        except ValueError as error:
            yield line.bad(f"malformed tree ({error})", AS_GIVEN)
            continue
        wanted = every if phrases and split == "train" else every[-1:]
        for number, (label, words) in enumerate(wanted, start=1):
            if label == _NEUTRAL and label not in classes:
                yield line.bad("neutral", by_convention=True)
            else:
                part = f".{number}" if len(wanted) > 1 else ""
                yield sentence(line, classes.get(label, label), words, part)


def tree_phrases(tree: str) -> list[tuple[str, Words]]:
    """Label and words of each phrase of a tree such as `(3 (2 It) (4 sings))`, the whole last.

    Raises:
        ValueError: it is not a tree of labels and words.
    """
    closed: list[tuple[str, Words]] = []
    open_: list[list[str]] = []  # label and words of each open phrase
    for piece in _PIECE.findall(tree):
        if piece == "(" and (open_ or not closed):
            open_.append([])
        elif not open_:
            raise ValueError("there is text outside the brackets")
        elif piece == ")":
            label, *words = open_.pop() or [""]
            if not words:
                raise ValueError("a phrase has no words")
            closed.append((label, Words(words)))
            if open_:
                if not open_[-1]:
                    raise ValueError("a phrase has no label")
                open_[-1] += words
        else:
            open_[-1].append(_BRACKETS.get(piece, piece.replace("\\/", "/")))
    if open_ or not closed:
        raise ValueError("a bracket is not closed")
    return closed


SST1 = SourceComponent(
    name="sst-1",
    help="Stanford Sentiment Treebank, 5 classes",
    build=partial(_build, name="sst-1", names=_FIVE),
    options=SstOptions,
    needs="--from FOLDER with stsa.fine.{train,dev,test} or the trees {train,dev,test}.txt",
    source="Socher et al., EMNLP 2013",
)


SST2 = SourceComponent(
    name="sst-2",
    help="Stanford Sentiment Treebank, negative / positive",
    build=partial(_build, name="sst-2", names=_TWO),
    options=SstOptions,
    needs="--from FOLDER with stsa.binary.{train,dev,test} or the trees {train,dev,test}.txt",
    source="Socher et al., EMNLP 2013",
)
