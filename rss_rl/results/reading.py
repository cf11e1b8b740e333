"""A run's selections on a split: sample texts, and how often it keeps each word.

Legend: B examples, S sentences, N_s tokens in slot s, C classes, V words of the vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from rss_rl.components import NOTHING, Trust
from rss_rl.config import RunConfig
from rss_rl.data.length_buckets import plain_batches
from rss_rl.data.store import Split
from rss_rl.data.vocabulary import SPECIAL_WORDS
from rss_rl.models.inputs import TensorBatch, tensor_batch
from rss_rl.results.score import open_with_data
from rss_rl.rollouts.snapshot import Models, inference
from rss_rl.seeding import generator
from rss_rl.types import ROLES, Array, Batch, LabelSpec

_MOST_ROWS = 2000
_OF_A_KIND = 4
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
                  the label
    unsure        the smallest margins between the two most probable classes; none for scores
    words         indexed by word, for every vocabulary word in the texts: count, how often it
                  occurs; kept; share, kept / count. Ordered by the share smoothed towards that of
                  all words, (kept + 10 m) / (count + 10), so that rare words do not lead
    """

    rows: int
    of: int
    right: tuple[ReadText, ...]
    wrong: tuple[ReadText, ...]
    unsure: tuple[ReadText, ...]
    words: pd.DataFrame

    @property
    def share(self) -> float:
        """Share of all words kept."""
        return float(self.words["kept"].sum() / self.words["count"].sum())


@dataclass(frozen=True)
class _Read:
    """kept S x bool [B, N_s]; predicted [B]; errors [B], 0 if right; confidence and margin [B]
    for classes; the last four None without a trained classifier."""

    kept: list[Array]
    predicted: Array | None = None
    errors: Array | None = None
    confidence: Array | None = None
    margin: Array | None = None


def read_split(path: Path, split: str, *, trust: Trust = NOTHING) -> Reading:
    """Read a split with a run's best checkpoint and thresholded selections.

    Args:
        trust: see `rss_rl.training.trained_models.open_models`.

    Raises:
        RssError: see `rss_rl.results.score.score_run`.
    """
    config, models, prepared, device = open_with_data(path, "best", None, trust)
    examples = prepared.split(split)
    rows = np.arange(len(examples))
    if len(rows) > _MOST_ROWS:
        rows = np.sort(generator(config.seed, "reading").choice(rows, _MOST_ROWS, replace=False))
    with inference(models, config.learner.threads, device, config.learner.precision):
        reader = _Reader(config, models, examples, device)
        return reader.read(rows, prepared.vocabulary.words)


class _Reader:
    def __init__(
        self, config: RunConfig, models: Models, examples: Split, device: torch.device
    ) -> None:
        self._config, self._models, self._examples = config, models, examples
        self._device = device

    def read(self, rows: Array, vocabulary: Sequence[str]) -> Reading:
        counts = np.zeros((2, len(vocabulary)), np.int64)  # [occurs, kept] x [V]
        order: list[Array] = []
        columns: list[tuple[Array | None, ...]] = []
        for batch, found in self._batches(rows):
            for ids, valid, kept in zip(batch.tokens, batch.valid, found.kept, strict=True):
                for row, indices in enumerate((valid, kept)):
                    counts[row] += np.bincount(ids[indices], minlength=len(vocabulary))
            order.append(batch.rows)
            columns.append((found.errors, found.confidence, found.margin))
        joined = [None if c[0] is None else np.concatenate(c) for c in zip(*columns, strict=True)]
        chosen = _choose(np.concatenate(order), *joined)
        right, wrong, unsure = (tuple(self._texts(of_kind)) for of_kind in chosen)
        return Reading(
            len(rows), len(self._examples), right, wrong, unsure, _count(counts, vocabulary)
        )

    def _batches(self, rows: Array) -> Iterator[tuple[Batch, _Read]]:
        bounds = self._config.evaluation.batch_size, self._config.batch_tokens
        for indices in plain_batches(self._examples.lengths(rows), *bounds):
            batch = self._examples.batch(rows[indices])
            yield batch, self._read(batch, tensor_batch(batch, self._device))

    def _read(self, batch: Batch, tensors: TensorBatch) -> _Read:
        if self._config.selects:
            inputs = self._models.policy_inputs(tensors.tokens, tensors.valid, tensors.states)
            pairs = zip(inputs, tensors.valid, strict=True)
            selections = [self._models.policy.threshold(*pair) for pair in pairs]
        else:
            selections = [valid[:, None].expand(-1, ROLES, -1) for valid in tensors.valid]
        kept = [selection.any(1).cpu().numpy() for selection in selections]
        if not self._config.predicts:
            return _Read(kept)
        classifier = self._models.classifier
        logits = classifier(tensors.tokens, tensors.valid, selections, tensors.marks)
        predicted = classifier.predict(logits).float().cpu().numpy()
        if batch.labels.dtype == np.float32:
            return _Read(kept, predicted, np.abs(predicted - batch.labels))
        best = torch.softmax(logits.double(), -1).topk(min(2, logits.shape[1]), -1).values
        confidence = best[:, 0].cpu().numpy()
        margin = (best[:, 0] - best[:, -1]).cpu().numpy()
        return _Read(kept, predicted, predicted != batch.labels, confidence, margin)

    def _texts(self, rows: Array) -> Iterator[ReadText]:
        for row in rows.tolist():
            ((batch, found),) = self._batches(np.array([row]))
            labels, words = self._examples.labels, self._examples.words(row)
            real = [valid[0] for valid in batch.valid]
            predicted = None if found.predicted is None else found.predicted[0]
            yield ReadText(
                self._examples.example_id(row),
                words,
                tuple(kept[0, mask] for kept, mask in zip(found.kept, real, strict=True)),
                None
                if batch.rationale is None
                else tuple(b[0, mask] for b, mask in zip(batch.rationale, real, strict=True)),
                _name(labels, batch, words, float(batch.labels[0])),
                None if predicted is None else _name(labels, batch, words, float(predicted)),
                None if found.confidence is None else float(found.confidence[0]),
            )


def _choose(
    rows: Array, errors: Array | None, confidence: Array | None, margin: Array | None
) -> tuple[Array, Array, Array]:
    """A few rows each of right, wrong and unsure examples; without predictions the first rows."""
    none = rows[:0]
    if errors is None:
        return rows[:_OF_A_KIND], none, none
    if confidence is None or margin is None:
        order = rows[np.argsort(errors, kind="stable")]
        return order[:_OF_A_KIND], order[_OF_A_KIND:][::-1][:_OF_A_KIND], none
    surest = np.argsort(-confidence, kind="stable")
    right, wrong = (surest[errors[surest] == kind][:_OF_A_KIND] for kind in (0, 1))
    rest = np.setdiff1d(np.arange(len(rows)), np.concatenate([right, wrong]))
    unsure = rest[np.argsort(margin[rest], kind="stable")][:_OF_A_KIND]
    return rows[right], rows[wrong], rows[unsure]


def _name(labels: LabelSpec, batch: Batch, words: tuple[tuple[str, ...], ...], value: float) -> str:
    """A label or prediction of a one-example batch, as text."""
    if labels.kind == "score":
        return f"{value:.3g}"
    if labels.kind == "classes":
        return labels.names[int(value)]
    if labels.kind == "sentence":
        return f"sentence {int(value) + 1}"
    assert batch.marks is not None
    return words[0][int(np.argmax(batch.marks[0] == int(value)))]


def _count(counts: Array, vocabulary: Sequence[str]) -> pd.DataFrame:
    """`Reading.words` from occurrences and words kept, int [2, V]."""
    real = slice(len(SPECIAL_WORDS), None)
    words = pd.DataFrame(counts.T, list(vocabulary), ["count", "kept"])[real].rename_axis("word")
    words = words[words["count"] > 0]
    mean = words["kept"].sum() / words["count"].sum()
    smoothed = (words["kept"] + _PRIOR * mean) / (words["count"] + _PRIOR)
    words = words.assign(
        share=words["kept"] / words["count"], smoothed=-smoothed, often=-words["count"]
    )
    return words.sort_values(["smoothed", "often", "word"]).drop(columns=["smoothed", "often"])
