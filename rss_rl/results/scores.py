"""A run on a split: scores, sample texts, how often it keeps each word, what is right by class.

Legend: B examples, S sentences, N_s tokens in slot s, C classes, V words of the vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from sklearn.metrics import confusion_matrix, precision_recall_fscore_support

from rss_rl.components import NOTHING, Trust
from rss_rl.config import RunConfig
from rss_rl.data.store import Prepared, Split
from rss_rl.data.vocabulary import SPECIAL_WORDS
from rss_rl.inference.artifact import scores_of, temperature
from rss_rl.reading.device import find_device, inference
from rss_rl.reading.models import Models
from rss_rl.reading.scan import Scanned, scan
from rss_rl.reading.trained_runs import data_of, open_models
from rss_rl.rollouts.sampler import run_task
from rss_rl.seeding import generator
from rss_rl.training.evaluation import Mode, evaluate
from rss_rl.types import Array, Batch

_MOST_ROWS = 2000
_OF_A_KIND = 4
_BINS = 10
_PRIOR = 10.0
"""Pseudo-counts, at the mean share kept, added to each word's occurrences."""


@dataclass(frozen=True)
class ReadText:
    """An example with the run's selection and prediction.

    words       of each sentence, as written
    kept        S x bool [N_s], selected as head or dependent
    marked      S x bool [N_s], the rationale; None if unknown
    label, prediction  as shown; prediction None if the run has no trained classifier
    confidence  probability of the prediction; None for a score
    """

    id: str
    words: tuple[tuple[str, ...], ...]
    kept: tuple[Array, ...]
    marked: tuple[Array, ...] | None
    label: str
    prediction: str | None
    confidence: float | None

    @property
    def share(self) -> float:
        """Share of the words kept."""
        return float(np.concatenate(self.kept).mean())


@dataclass(frozen=True)
class Reading:
    """Findings on `rows` of the `of` rows of a split.

    right, wrong  the most confident predictions; for scores, those closest to and farthest from
                  the label; without predictions the first texts, all right
    words         indexed by word, for every vocabulary word in the texts: count, how often it
                  occurs; kept. Ordered by the share smoothed towards that of all words,
                  (kept + 10 m) / (count + 10), so that rare words do not lead
    class_words   where labels are classes that the run predicts: how often each word is kept in
                  texts of each predicted class, int64 [V', C], indexed by word
    predictions   by row of the split: label; predicted; error, 0 if right; and for classes
                  confidence, and what it was `uncalibrated`. Only label if the run has no trained
                  classifier
    kept          of each of these rows, S x bool [N_s], the words selected as head or dependent
    """

    rows: int
    of: int
    right: tuple[ReadText, ...]
    wrong: tuple[ReadText, ...]
    words: pd.DataFrame
    class_words: pd.DataFrame
    predictions: pd.DataFrame
    kept: tuple[tuple[Array, ...], ...]


def score_run(
    path: Path,
    split: str,
    modes: Iterable[Mode],
    *,
    which: str | int = "best",
    device: str | None = None,
    trust: Trust = NOTHING,
) -> dict[str, dict[str, float]]:
    """Metrics of a run's checkpoint on a split under each mode.

    Args:
        which: `best`, `latest` or a step.
        device: to compute on; None for the one the run was trained on.
        trust: see `open_models`.

    Raises:
        RssError: no such run, checkpoint or split, or the data have been prepared again since.
    """
    config, models, prepared, used_device = open_with_data(path, which, device, trust)
    examples = prepared.split(split)
    task = run_task(config, models, examples, prepared.vocabulary.words, used_device)
    return evaluate(models, examples, config, modes, device=used_device, task=task)


def open_with_data(
    path: Path, which: str | int, device: str | None, trust: Trust = NOTHING
) -> tuple[RunConfig, Models, Prepared, torch.device]:
    """A run's configuration, its models on their device, and its training data.

    Raises:
        RssError: see `score_run`.
    """
    config, models, inputs = open_models(path, which, trust)
    prepared = data_of(config, inputs, trust)
    used_device = find_device(device or config.learner.device)
    models.classifier.to(used_device)
    models.policy.to(used_device)
    return config, models, prepared, used_device


def read_split(
    path: Path,
    split: str,
    *,
    which: str | int = "best",
    device: str | None = None,
    trust: Trust = NOTHING,
) -> Reading:
    """Read a split with a run's checkpoint and thresholded selections; arguments as `score_run`.

    Raises:
        RssError: see `score_run`.
    """
    config, models, prepared, used_device = open_with_data(path, which, device, trust)
    examples = prepared.split(split)
    rows = np.arange(len(examples))
    if len(rows) > _MOST_ROWS:
        rows = np.sort(generator(config.seed, "reading").choice(rows, _MOST_ROWS, replace=False))
    with inference(models, config.learner.threads, used_device, config.learner.precision):
        divisor = temperature(config, scores_of(path, which))
        reader = _Reader(config, models, examples, used_device, divisor)
        return reader.read(rows, prepared.vocabulary.words)


@dataclass(frozen=True)
class _Reader:
    config: RunConfig
    models: Models
    examples: Split
    device: torch.device
    temperature: float

    def read(self, rows: Array, vocabulary: Sequence[str]) -> Reading:
        labels, width = self.examples.labels, len(vocabulary)
        names = labels.names if labels.kind == "classes" and self.config.predicts else ()
        counts = np.zeros((2, width), np.int64)  # [occurs, kept] x [V]
        by_class = np.zeros((len(names), width), np.int64)
        scores, all_kept = [], []
        for batch, kept_words, score in self._batches(rows):
            for ids, valid, kept in zip(batch.tokens, batch.valid, kept_words, strict=True):
                for row, indices in enumerate((valid, kept)):
                    counts[row] += np.bincount(ids[indices], minlength=width)
                for number in range(len(names)):
                    of_class = kept & (score["predicted"] == number).to_numpy()[:, None]
                    by_class[number] += np.bincount(ids[of_class], minlength=width)
            scores.append(score)
            for row in range(len(batch)):
                real = zip(kept_words, batch.valid, strict=True)
                all_kept.append(tuple(kept[row, valid[row]] for kept, valid in real))
        predictions = pd.concat(scores)
        right, wrong = (tuple(map(self._text, chosen)) for chosen in _choose(predictions))
        of_classes = pd.DataFrame(by_class.T, list(vocabulary), list(names))[len(SPECIAL_WORDS) :]
        return Reading(
            len(rows),
            len(self.examples),
            right,
            wrong,
            _count(counts, vocabulary),
            of_classes[of_classes.any(axis=1)].rename_axis("word"),
            predictions,
            tuple(all_kept),
        )

    def _batches(self, rows: Array) -> Iterator[tuple[Batch, list[Array], pd.DataFrame]]:
        """Batches, the words kept, S x bool [B, N_s], and scores as `_scores` returns them."""
        for scanned in scan(self.models, self.examples, self.config, self.device, rows):
            selections = scanned.thresholded if self.config.selects else scanned.everything
            kept = [selection.any(1).cpu().numpy() for selection in selections]
            yield scanned.batch, kept, self._scores(scanned, selections)

    def _scores(self, scanned: Scanned, selections: list[torch.Tensor]) -> pd.DataFrame:
        """See `Reading.predictions`."""
        batch = scanned.batch
        scores = pd.DataFrame({"label": batch.labels}, index=batch.rows)
        if not self.config.predicts:
            return scores
        logits = scanned.logits(selections)
        scores["predicted"] = self.models.classifier.predict(logits).float().cpu().numpy()
        if batch.labels.dtype == np.float32:
            return scores.assign(error=np.abs(scores["predicted"] - batch.labels))
        for name, divisor in {"confidence": self.temperature, "uncalibrated": 1.0}.items():
            scores[name] = torch.softmax(logits.double() / divisor, -1).amax(-1).cpu().numpy()
        return scores.assign(error=scores["predicted"] != batch.labels)

    def _text(self, row: int) -> ReadText:
        ((batch, kept, scores),) = self._batches(np.array([row]))
        words = self.examples.words(row)
        marks = None if batch.marks is None else batch.marks[0]
        name = partial(self.examples.labels.shown, words=words[0], marks=marks)
        real = [valid[0] for valid in batch.valid]
        score = scores.iloc[0]
        return ReadText(
            self.examples.example_id(row),
            words,
            tuple(bits[0, mask] for bits, mask in zip(kept, real, strict=True)),
            None
            if batch.rationale is None
            else tuple(bits[0, mask] for bits, mask in zip(batch.rationale, real, strict=True)),
            name(float(batch.labels[0])),
            name(score["predicted"]) if "predicted" in score else None,
            float(score["confidence"]) if "confidence" in score else None,
        )


def _choose(scores: pd.DataFrame) -> tuple[pd.Index, pd.Index]:
    """The rows of a few right and wrong examples; without predictions the first ones."""
    if "error" not in scores:
        return scores.index[:_OF_A_KIND], scores.index[:0]
    if "confidence" not in scores:
        order = scores.sort_values("error", kind="stable").index
        return order[:_OF_A_KIND], order[_OF_A_KIND:][::-1][:_OF_A_KIND]
    surest = scores.sort_values("confidence", ascending=False, kind="stable")
    right, wrong = (surest.index[surest["error"] == kind][:_OF_A_KIND] for kind in (False, True))
    return right, wrong


def _count(counts: Array, vocabulary: Sequence[str]) -> pd.DataFrame:
    """`Reading.words` from occurrences and words kept, int [2, V]."""
    real = slice(len(SPECIAL_WORDS), None)
    words = pd.DataFrame(counts.T, list(vocabulary), ["count", "kept"])[real].rename_axis("word")
    words = words[words["count"] > 0]
    mean = words["kept"].sum() / words["count"].sum()
    smoothed = (words["kept"] + _PRIOR * mean) / (words["count"] + _PRIOR)
    order = words.assign(smoothed=-smoothed, often=-words["count"])
    return words.loc[order.sort_values(["smoothed", "often", "word"]).index]


def class_scores(predictions: pd.DataFrame, names: Sequence[str]) -> pd.DataFrame:
    """Precision, recall, F1 and rows of each class, and how often it was taken for each.

    Args:
        predictions: with columns `label` and `predicted`, numbers of classes.
        names: of all classes.

    Returns:
        A line per class in the order of `names`: precision, recall, f1, rows, and a column with
        the name of each class, the rows that were taken for it. NaN: precision of a class that was
        never predicted, recall of one without rows.
    """
    numbers = range(len(names))
    read = predictions["label"], predictions["predicted"]
    precision, recall, f1, rows = precision_recall_fscore_support(
        *read, labels=numbers, zero_division=np.nan
    )
    scores = pd.DataFrame(
        {"precision": precision, "recall": recall, "f1": f1, "rows": rows}, index=list(names)
    )
    taken = pd.DataFrame(confusion_matrix(*read, labels=numbers), list(names), list(names))
    return pd.concat([scores, taken], axis=1)


def calibration(predictions: pd.DataFrame, column: str = "confidence") -> pd.DataFrame:
    """Confidence, accuracy and rows in ten equal intervals of the confidence, empty ones left out.

    Args:
        predictions: with the confidence in `column`, and `error`, 0 or False where right.
    """
    surest = predictions[column]
    right = pd.DataFrame(
        {"confidence": surest, "accuracy": 1.0 - predictions["error"].astype(float)}
    )
    bins = right.groupby(np.minimum((surest * _BINS).astype(int), _BINS - 1))
    means = bins[["confidence", "accuracy"]].mean()
    return means.assign(rows=bins.size()).reset_index(drop=True)


def coverage(predictions: pd.DataFrame) -> pd.DataFrame:
    """What abstaining from the least certain texts gives: of some tenths of the rows, `least`, the
    least confidence among them, `coverage`, their share of all rows, and `accuracy`.

    Args:
        predictions: with columns `confidence`, and `error`, 0 or False where right.
    """
    sure, wrong = predictions[["confidence", "error"]].to_numpy(np.float64).T
    tenths = np.ceil(len(sure) * np.arange(1, _BINS + 1) / _BINS).astype(int)
    least = np.unique(np.sort(sure)[-tenths])[::-1]
    kept = sure >= least[:, None]  # [tenths, rows]: rows of the same confidence go together
    accuracy = 1 - (kept * wrong).sum(1) / kept.sum(1)
    return pd.DataFrame({"least": least, "coverage": kept.mean(1), "accuracy": accuracy})


def calibration_error(bins: pd.DataFrame) -> float:
    """Expected calibration error (Naeini et al. 2015): mean distance of confidence and accuracy
    over the rows; bins: see `calibration`."""
    return float(np.average((bins["confidence"] - bins["accuracy"]).abs(), weights=bins["rows"]))
