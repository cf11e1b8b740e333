"""Scores of a labelled file that is none of a run's splits.

Legend: B examples, S sentences.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from rss_rl.components import NOTHING, Trust
from rss_rl.data.checks import LabelChecker
from rss_rl.data.column_files import Columns, column_files
from rss_rl.data.sources import BadRow
from rss_rl.durable import disk_errors, file_sha256, replace_file
from rss_rl.errors import ConfigError, DataError
from rss_rl.inference.model import Encoded, Model, batch_of, load_model
from rss_rl.json_files import read_json
from rss_rl.rollouts.sampler import run_task
from rss_rl.runs.run_directory import EVALUATED_FILE
from rss_rl.training.evaluation import Mode, evaluate
from rss_rl.types import Array, Batch, LabelSpec


class LabelledRows:
    """The rows of a table, in memory, as a trained model reads them: an `ExampleSource`.

    Args:
        columns: of the texts, then of the label.

    Raises:
        DataError: a bad row, named; an unreadable file or column.
    """

    def __init__(self, model: Model, file: Path, columns: Sequence[str]) -> None:
        self.labels: LabelSpec = model.labels
        self.sentences: int = model.inputs.sentences
        self._examples: list[Encoded] = []
        values: list[float] = []
        checker, names = LabelChecker(self.labels), self.labels.names
        named = Columns(tuple(columns[:-1]), columns[-1])
        for row in column_files([file], named, self.labels, dev=file, test=file).read("test"):
            if isinstance(row, BadRow):
                raise row.error()
            where = f"{row.file}, row {row.row}"
            self._examples.append(model.encode(row.texts, where))
            label, (fault, remedy) = checker.value(row.label)
            if label is None:
                raise DataError(fault, where=where, remedy=remedy)
            values.append(names.index(label) if isinstance(label, str) else label)
        if not values:
            raise DataError("has no rows", where=str(file), remedy="Give rows with labels")
        self._labels = np.array(values, np.float32 if self.labels.kind == "score" else np.int64)

    def __len__(self) -> int:
        return len(self._examples)

    def lengths(self) -> Array:
        """int64 [len, S]."""
        return np.array([[len(ids) for ids in example.ids] for example in self._examples])

    def batch(self, rows: Sequence[int] | Array) -> Batch:
        """See `ExampleSource`."""
        numbers = np.asarray(rows)
        batch = batch_of([self._examples[row] for row in numbers.tolist()])
        return replace(batch, rows=numbers, labels=self._labels[numbers])


def score_labelled(
    path: Path,
    file: Path,
    columns: Sequence[str],
    modes: Sequence[Mode],
    *,
    which: str | int = "best",
    device: str = "cpu",
    trust: Trust = NOTHING,
) -> dict[str, dict[str, float]]:
    """Metrics of a run's checkpoint on the rows of a file, as `score_run` of a split's.

    Args:
        columns: of the texts, then of the label; empty for those that the run was trained on.

    Raises:
        RssError: see `load_model` and `LabelledRows`; or the columns are not known.
    """
    model = load_model(path, which, trust, device)
    wanted = tuple(columns) or model.inputs.manifest.columns
    if len(wanted) != model.inputs.sentences + 1:
        more = "--text, --text-b" if model.inputs.sentences == 2 else "--text"
        raise ConfigError(
            "the columns of text and label are not named",
            where=str(file),
            remedy=f"Name them with {more} and --label",
        )
    rows, words = LabelledRows(model, file, wanted), model.inputs.vocabulary.words
    task = run_task(model.config, model.models, rows, words, model.device)
    return evaluate(model.models, rows, model.config, modes, device=model.device, task=task)


def keep_scores(run: Path, file: Path, which: str | int, scores: Mapping[str, Any]) -> None:
    """Write the scores of a labelled file into `evaluated.json` of a run, in place of former ones.

    Raises:
        CheckpointError: it cannot be written.
    """
    target = run / EVALUATED_FILE
    recorded = read_json(target, remedy="Delete it") if target.is_file() else {}
    recorded[file.name] = {"sha256": file_sha256(file), "checkpoint": which, "scores": dict(scores)}
    with disk_errors(target, "cannot be written", "Make the run's directory writable"):
        replace_file(target, json.dumps(recorded, indent=2) + "\n")
