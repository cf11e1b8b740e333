"""SNLI: sentence pairs, entailment / neutral / contradiction, from its JSON lines.

Pairs without agreement of the annotators have the gold label '-'; by convention they are left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from rss_rl.components import NoOptions
from rss_rl.data.corpora.folders import source_folder
from rss_rl.data.records import Record, RowModel, examples, read_records
from rss_rl.data.sources import ReaderSource, Row, SourceComponent, SourceRequest
from rss_rl.errors import DataError
from rss_rl.types import LabelSpec

_PATTERNS = {
    "train": ("snli_1.0_train.jsonl", "train*.jsonl"),
    "dev": ("snli_1.0_dev.jsonl", "dev.jsonl"),
    "test": ("snli_1.0_test.jsonl", "test.jsonl"),
}
_LABELS = LabelSpec("classes", names=("entailment", "neutral", "contradiction"))
_NO_GOLD = "-"


class _Pair(RowModel):
    gold_label: str
    sentence1: str
    sentence2: str


def _read(split: str, path: Path) -> Iterator[Row]:
    return examples(read_records(path, "jsonl"), _example)


def _example(record: Record) -> Row:
    pair = _Pair.model_validate(record.values)
    if pair.gold_label == _NO_GOLD:
        return record.bad("no gold label", by_convention=True)
    id_ = str(record.values.get("pairID", record.row))
    return record.example(id_, (pair.sentence1, pair.sentence2), pair.gold_label)


def _build(request: SourceRequest, options: NoOptions) -> ReaderSource:
    folder = source_folder("SNLI", request, "snli_1.0_train.jsonl")
    files = {split: (_find(folder, patterns),) for split, patterns in _PATTERNS.items()}
    return ReaderSource("snli", 2, _LABELS, files, _read)


def _find(folder: Path, patterns: tuple[str, ...]) -> Path:
    for pattern in patterns:
        found = sorted(folder.glob(pattern))
        if len(found) == 1:
            return found[0]
        if found:
            raise DataError(
                f"{len(found)} files match {pattern}: {', '.join(path.name for path in found)}",
                where=str(folder),
                remedy="Leave one of them in the folder",
            )
    raise DataError(
        f"there is no {' or '.join(patterns)}",
        where=str(folder),
        remedy="Unpack SNLI there, or name another --from",
    )


SNLI = SourceComponent(
    name="snli",
    help="SNLI sentence pairs, entailment / neutral / contradiction",
    build=_build,
    capabilities=frozenset({"pairs"}),
    needs="--from FOLDER with snli_1.0_{train,dev,test}.jsonl or {train*,dev,test}.jsonl",
    source="Bowman et al., EMNLP 2015",
)
