"""TrecQA (Wang et al. 2007): which of the answers to a question are right.

Slot 0 is the question and slot 1 an answer; all answers to a question have its number, so that they
can be ranked.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from rss_rl.components import NoOptions
from rss_rl.data.corpora.folders import source_files, source_folder
from rss_rl.data.records import Record, column_names, read_records, require_columns
from rss_rl.data.sources import (
    BadRow,
    RawExample,
    ReaderSource,
    SourceComponent,
    SourceRequest,
    Words,
)
from rss_rl.types import LabelSpec

_COLUMNS = ("qtext", "label", "atext")
_CLASSES = {"0": "wrong", "1": "right"}


def _read(split: str, path: Path) -> Iterator[RawExample | BadRow]:
    require_columns(path, column_names(path), _COLUMNS)
    for record in read_records(path):
        yield record if isinstance(record, BadRow) else _example(record)


def _example(record: Record) -> RawExample:
    values = record.values
    label = values["label"].strip()
    return RawExample(
        id=f"{Path(record.file).stem}-{record.row}",
        texts=(Words(values["qtext"].split()), Words(values["atext"].split())),
        label=_CLASSES.get(label, label),
        file=record.file,
        row=record.row,
        question=" ".join(values["qtext"].split()),
    )


def _build(request: SourceRequest, options: NoOptions) -> ReaderSource:
    """TrecQA from the given folder.

    Raises:
        DataError: no such folder or file.
    """
    names = {split: f"{split}.csv" for split in ("train", "dev", "test")}
    files = source_files(source_folder("trecqa", request, "train.csv"), names)
    labels = LabelSpec("classes", names=tuple(_CLASSES.values()))  # the right one last
    return ReaderSource("trecqa", 2, labels, files, _read)


TRECQA = SourceComponent(
    name="trecqa",
    help="TrecQA, questions with right and wrong answers",
    build=_build,
    capabilities=frozenset({"pairs"}),
    needs="--from FOLDER with train.csv, dev.csv, test.csv",
    source="Wang et al., EMNLP 2007",
)
