"""Pairs of sentences: SICK, SNLI and TrecQA.

SICK (SemEval-2014 task 1), with a relatedness score and an entailment label: the three files of the
task (SICK_train.txt, SICK_trial.txt, SICK_test_annotated.txt), or the one file of the full release
(SICK.txt, whose column SemEval_set names the split).

SNLI, entailment / neutral / contradiction, from its JSON lines. Pairs without agreement of the
annotators have the gold label '-'; by convention they are left out.

TrecQA (Wang et al. 2007), which of the answers to a question are right: slot 0 is the question and
slot 1 an answer; all answers to a question have its number, so that they can be ranked.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from rss_rl.components import NoOptions
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
from rss_rl.data.tables import (
    Record,
    RowModel,
    column_names,
    examples,
    read_records,
    require_columns,
)
from rss_rl.errors import DataError
from rss_rl.types import LabelSpec

_SICK_FILES = {
    "train": "SICK_train.txt",
    "dev": "SICK_trial.txt",
    "test": "SICK_test_annotated.txt",
}
_FULL_FILE = "SICK.txt"
_FULL_SETS = {"train": "TRAIN", "dev": "TRIAL", "test": "TEST"}
_SCORE = "relatedness_score"
_SCORES = LabelSpec("score", low=1.0, high=5.0)
_ENTAILMENT = LabelSpec("classes", names=("entailment", "neutral", "contradiction"))


def _read_sick(split: str, path: Path, *, score: bool) -> Iterator[Row]:
    full = path.name == _FULL_FILE
    label = _SCORE if score else ("entailment_label" if full else "entailment_judgment")
    columns = ("pair_ID", "sentence_A", "sentence_B", label)
    require_columns(path, column_names(path, "tsv"), columns + ("SemEval_set",) * full)
    for record in read_records(path, "tsv", quoted=False):
        if isinstance(record, BadRow):
            if not full or split == "train":
                yield record
            continue
        values = record.values
        if not full or values["SemEval_set"].strip() == _FULL_SETS[split]:
            gold = values[label].strip()
            texts = values["sentence_A"], values["sentence_B"]
            yield record.example(values["pair_ID"], texts, gold if score else gold.lower())


def _build_sick(request: SourceRequest, options: NoOptions, *, score: bool) -> Source:
    """SICK with relatedness from 1 to 5, or with the entailment label."""
    folder = request.folder("SICK", "SICK_train.txt")
    full = dict.fromkeys(_FULL_SETS, _FULL_FILE)
    files = files_in(folder, full if (folder / _FULL_FILE).is_file() else _SICK_FILES)
    name, labels = ("sick-relatedness", _SCORES) if score else ("sick-entailment", _ENTAILMENT)
    return Source(name, 2, labels, files, partial(_read_sick, score=score))


def _sick(name: str, help: str, *, score: bool) -> SourceComponent:
    return SourceComponent(
        name=name,
        help=help,
        build=partial(_build_sick, score=score),
        capabilities=frozenset({"pairs"}),
        needs=f"--from FOLDER with {', '.join(_SICK_FILES.values())}",
        source="Marelli et al., SemEval 2014",
    )


SICK_RELATEDNESS = _sick(
    name="sick-relatedness", help="SICK sentence pairs, relatedness score 1 to 5", score=True
)
SICK_ENTAILMENT = _sick(
    name="sick-entailment",
    help="SICK sentence pairs, entailment / neutral / contradiction",
    score=False,
)

_SNLI_FILES = {
    "train": ("snli_1.0_train.jsonl", "train*.jsonl"),
    "dev": ("snli_1.0_dev.jsonl", "dev.jsonl"),
    "test": ("snli_1.0_test.jsonl", "test.jsonl"),
}
_NO_GOLD = "-"


class _Pair(RowModel):
    gold_label: str
    sentence1: str
    sentence2: str


def _read_snli(split: str, path: Path) -> Iterator[Row]:
    return examples(read_records(path, "jsonl"), _snli_example)


def _snli_example(record: Record) -> Row:
    pair = _Pair.model_validate(record.values)
    if pair.gold_label == _NO_GOLD:
        return record.bad("no gold label", by_convention=True)
    id_ = str(record.values.get("pairID", record.row))
    return record.example(id_, (pair.sentence1, pair.sentence2), pair.gold_label)


def _build_snli(request: SourceRequest, options: NoOptions) -> Source:
    folder = request.folder("SNLI", "snli_1.0_train.jsonl")
    files = {split: (_find(folder, patterns),) for split, patterns in _SNLI_FILES.items()}
    return Source("snli", 2, _ENTAILMENT, files, _read_snli)


def _find(folder: Path, patterns: tuple[str, ...]) -> Path:
    fitting = next(filter(None, (sorted(folder.glob(pattern)) for pattern in patterns)), [])
    if len(fitting) != 1:
        several = f"several files fit: {', '.join(path.name for path in fitting)}"
        raise DataError(
            several if fitting else f"there is no {' or '.join(patterns)}",
            where=str(folder),
            remedy="Unpack SNLI there, leave one of them, or name another --from",
        )
    return fitting[0]


SNLI = SourceComponent(
    name="snli",
    help="SNLI sentence pairs, entailment / neutral / contradiction",
    build=_build_snli,
    capabilities=frozenset({"pairs"}),
    needs="--from FOLDER with snli_1.0_{train,dev,test}.jsonl or {train*,dev,test}.jsonl",
    source="Bowman et al., EMNLP 2015",
)

_TRECQA_COLUMNS = ("qtext", "label", "atext")
_TRECQA_FILES = {split: f"{split}.csv" for split in ("train", "dev", "test")}
_ANSWERS = {"0": "wrong", "1": "right"}
_RIGHT_OR_NOT = LabelSpec("classes", names=tuple(_ANSWERS.values()))  # the right one last


def _read_trecqa(split: str, path: Path) -> Iterator[Row]:
    require_columns(path, column_names(path), _TRECQA_COLUMNS)
    yield from examples(read_records(path), _trecqa_example)


def _trecqa_example(record: Record) -> RawExample:
    values = record.values
    label = values["label"].strip()
    question, answer = (Words(values[name].split()) for name in ("qtext", "atext"))
    return record.example(
        f"{Path(record.file).stem}-{record.row}",
        (question, answer),
        _ANSWERS.get(label, label),
        question=" ".join(question),
    )


TRECQA = SourceComponent(
    name="trecqa",
    help="TrecQA, questions with right and wrong answers",
    build=read_folder(2, _RIGHT_OR_NOT, _TRECQA_FILES, _read_trecqa, name="trecqa"),
    capabilities=frozenset({"pairs"}),
    needs="--from FOLDER with train.csv, dev.csv, test.csv",
    source="Wang et al., EMNLP 2007",
)
