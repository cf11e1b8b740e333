"""TrecQA (Wang et al. 2007): which of the answers to a question are right.

Slot 0 is the question and slot 1 an answer; all answers to a question have its number, so that they
can be ranked.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from rss_rl.components import NoOptions
from rss_rl.data.corpora.folders import source_files, source_folder
from rss_rl.data.records import Record, column_names, examples, read_records, require_columns
from rss_rl.data.sources import RawExample, ReaderSource, Row, SourceComponent, SourceRequest, Words
from rss_rl.types import LabelSpec

_COLUMNS = ("qtext", "label", "atext")
_CLASSES = {"0": "wrong", "1": "right"}


def _read(split: str, path: Path) -> Iterator[Row]:
    require_columns(path, column_names(path), _COLUMNS)
    yield from examples(read_records(path), _example)


def _example(record: Record) -> RawExample:
    values = record.values
    label = values["label"].strip()
    question, answer = (Words(values[name].split()) for name in ("qtext", "atext"))
    return record.example(
        f"{Path(record.file).stem}-{record.row}",
        (question, answer),
        _CLASSES.get(label, label),
        question=" ".join(question),
    )


def _build(request: SourceRequest, options: NoOptions) -> ReaderSource:
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
