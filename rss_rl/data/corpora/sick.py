"""SICK (SemEval-2014 task 1): sentence pairs with a relatedness score and an entailment label.

Reads the three files of the task (SICK_train.txt, SICK_trial.txt, SICK_test_annotated.txt) or the
one file of the full release (SICK.txt, whose column SemEval_set names the split).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from rss_rl.components import NoOptions
from rss_rl.data.corpora.folders import source_files, source_folder
from rss_rl.data.records import column_names, read_records, require_columns
from rss_rl.data.sources import BadRow, ReaderSource, Row, SourceComponent, SourceRequest
from rss_rl.types import LabelSpec

_TASK_FILES = {
    "train": "SICK_train.txt",
    "dev": "SICK_trial.txt",
    "test": "SICK_test_annotated.txt",
}
_FULL_FILE = "SICK.txt"
_FULL_SETS = {"train": "TRAIN", "dev": "TRIAL", "test": "TEST"}
_SCORE = "relatedness_score"
_SCORES = LabelSpec("score", low=1.0, high=5.0)
_CLASSES = LabelSpec("classes", names=("entailment", "neutral", "contradiction"))


def _read(split: str, path: Path, *, score: bool) -> Iterator[Row]:
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


def _build(request: SourceRequest, options: NoOptions, *, score: bool) -> ReaderSource:
    """SICK with relatedness from 1 to 5, or with the entailment label."""
    folder = source_folder("SICK", request, "SICK_train.txt")
    full = dict.fromkeys(_FULL_SETS, _FULL_FILE)
    files = source_files(folder, full if (folder / _FULL_FILE).is_file() else _TASK_FILES)
    name, labels = ("sick-relatedness", _SCORES) if score else ("sick-entailment", _CLASSES)
    return ReaderSource(name, 2, labels, files, partial(_read, score=score))


def _component(name: str, help: str, *, score: bool) -> SourceComponent:
    return SourceComponent(
        name=name,
        help=help,
        build=partial(_build, score=score),
        capabilities=frozenset({"pairs"}),
        needs=f"--from FOLDER with {', '.join(_TASK_FILES.values())}",
        source="Marelli et al., SemEval 2014",
    )


SICK_RELATEDNESS = _component(
    name="sick-relatedness", help="SICK sentence pairs, relatedness score 1 to 5", score=True
)
SICK_ENTAILMENT = _component(
    name="sick-entailment",
    help="SICK sentence pairs, entailment / neutral / contradiction",
    score=False,
)
