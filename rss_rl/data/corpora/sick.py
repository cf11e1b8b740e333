"""SICK (SemEval-2014 task 1): sentence pairs with a relatedness score and an entailment label.

Read are the three files of the task (SICK_train.txt, SICK_trial.txt, SICK_test_annotated.txt) and
the one file of the full release (SICK.txt, whose column SemEval_set names the split).
"""

from __future__ import annotations

__all__ = ["SICK_ENTAILMENT", "SICK_RELATEDNESS", "Sick"]

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from rss_rl.components import NoOptions
from rss_rl.data.corpora.options import source_folder
from rss_rl.data.records import Record, column_names, read_records, require_columns
from rss_rl.data.sources import BadRow, RawExample, SourceComponent, SourceRequest
from rss_rl.errors import DataError
from rss_rl.types import LabelSpec

_TASK_FILES = {
    "train": "SICK_train.txt",
    "dev": "SICK_trial.txt",
    "test": "SICK_test_annotated.txt",
}
_FULL_FILE = "SICK.txt"
_FULL_SETS = {"train": "TRAIN", "dev": "TRIAL", "test": "TEST"}
_SCORE = "relatedness_score"


@dataclass(frozen=True)
class Sick:
    """SICK in `folder`; `score` predicts relatedness from 1 to 5, else the entailment label."""

    folder: Path
    score: bool

    @property
    def name(self) -> str:
        """Name in the registry."""
        return "sick-relatedness" if self.score else "sick-entailment"

    @property
    def sentences(self) -> int:
        """Two sentences."""
        return 2

    def label_spec(self) -> LabelSpec:
        """A score from 1 to 5, or three classes."""
        if self.score:
            return LabelSpec("score", low=1.0, high=5.0)
        return LabelSpec("classes", names=("entailment", "neutral", "contradiction"))

    def splits(self) -> Mapping[str, tuple[Path, ...]]:
        """The files of each split.

        Raises:
            DataError: the folder has not all of them.
        """
        full = self.folder / _FULL_FILE
        if full.is_file():
            return dict.fromkeys(_FULL_SETS, (full,))
        files = {split: (self.folder / name,) for split, name in _TASK_FILES.items()}
        missing = [file.name for (file,) in files.values() if not file.is_file()]
        if missing:
            raise DataError(
                f"there is no {missing[0]}",
                where=str(self.folder),
                remedy="Unpack the SICK files of SemEval-2014 task 1 there, or name another --from",
            )
        return files

    def read(self, split: str) -> Iterator[RawExample | BadRow]:
        """Stream one split."""
        (path,) = self.splits()[split]
        full = path.name == _FULL_FILE
        label = _SCORE if self.score else ("entailment_label" if full else "entailment_judgment")
        columns = ("pair_ID", "sentence_A", "sentence_B", label)
        require_columns(path, column_names(path, "tsv"), columns + ("SemEval_set",) * full)
        for record in read_records(path, "tsv", quoted=False):
            if isinstance(record, BadRow):
                if not full or split == "train":
                    yield record
                continue
            values = record.values
            if not full or values["SemEval_set"].strip() == _FULL_SETS[split]:
                yield self._example(record, label)

    def _example(self, record: Record, label: str) -> RawExample:
        values = record.values
        gold = values[label].strip()
        return RawExample(
            id=values["pair_ID"],
            texts=(values["sentence_A"], values["sentence_B"]),
            label=gold if self.score else gold.lower(),
            file=record.file,
            row=record.row,
        )


def _relatedness(request: SourceRequest, options: NoOptions) -> Sick:
    """The relatedness task of the folder given."""
    return Sick(_folder(request), score=True)


def _entailment(request: SourceRequest, options: NoOptions) -> Sick:
    """The entailment task of the folder given."""
    return Sick(_folder(request), score=False)


def _folder(request: SourceRequest) -> Path:
    return source_folder("SICK", request, "SICK_train.txt")


SICK_RELATEDNESS = SourceComponent(
    name="sick-relatedness",
    help="SICK sentence pairs, relatedness score 1 to 5",
    build=_relatedness,
    capabilities=frozenset({"pairs"}),
    needs="--from FOLDER with SICK_train.txt, SICK_trial.txt, SICK_test_annotated.txt",
    source="Marelli et al., SemEval 2014",
)


SICK_ENTAILMENT = SourceComponent(
    name="sick-entailment",
    help="SICK sentence pairs, entailment / neutral / contradiction",
    build=_entailment,
    capabilities=frozenset({"pairs"}),
    needs="--from FOLDER with SICK_train.txt, SICK_trial.txt, SICK_test_annotated.txt",
    source="Marelli et al., SemEval 2014",
)
