"""The plainest alternative to a run: a linear classifier of all words, and of those it weighs most.

TF-IDF of words and word pairs, logistic regression with C chosen on dev, by scikit-learn: of large
tables by averaged stochastic gradients, which were as right on 22,000 tweets of three classes, in
a sixth of the time. A run that scores less than this on its kept words needs another look.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import compress, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.ndimage import convolve1d

from rss_rl.data.sources import Progress
from rss_rl.data.store import Prepared, Split
from rss_rl.ops.rationale_overlap import top_share
from rss_rl.runs.run_directory import RunDirectory
from rss_rl.seeding import generator
from rss_rl.types import Array

if TYPE_CHECKING:
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression, SGDClassifier

_COSTS = (0.5, 2.0, 8.0, 32.0)
"""Values of C, the inverse of the regularisation."""
_EXACT, _STEPS, _EPOCHS = 100_000, 400_000, (2, 8)
"""Rows x classes that are learnt from by second-order steps; rows that stochastic gradients read,
in so many epochs."""
_MOST_ROWS, _MOST_WORDS = 400_000, 20_000_000
"""Of training that are learnt from, drawn at random."""
_BLOCK = 1000
"""Rows between two lines of progress."""
_NEIGHBOURS = (0.25, 0.5, 1.0, 0.5, 0.25)

Text = tuple[tuple[str, ...], ...]
"""The words of each sentence."""


@dataclass(frozen=True)
class Linear:
    """A linear classifier, its features, and C, the inverse of its regularisation."""

    features: TfidfVectorizer
    model: LogisticRegression | SGDClassifier
    cost: float

    @classmethod
    def learn(
        cls,
        texts: Iterable[Text],
        labels: Array,
        costs: Sequence[float],
        progress: Progress = lambda *_: None,
        end: float = math.inf,
    ) -> list[Linear]:
        """Learn from texts, once for each value of C that there is time for.

        Args:
            end: of the time, by `time.monotonic`.

        Returns:
            Nothing where no two texts share a word, or all have one label.
        """
        from sklearn.feature_extraction.text import TfidfVectorizer

        features = TfidfVectorizer(analyzer=_terms, min_df=2, sublinear_tf=True, dtype=np.float32)
        if len(np.unique(labels)) < 2:
            return []
        try:
            read = features.fit_transform(_within(texts, len(labels), progress, end))
        except ValueError:  # no terms are left
            return []
        labels, learnt = labels[: read.shape[0]], list[Linear]()
        for number, cost in enumerate(costs):
            progress("a linear classifier: learning", number, len(costs))
            if not learnt or time.monotonic() < end:
                learnt.append(cls(features, _fit(read, labels, cost, progress, end), cost))
        return learnt

    def accuracy(self, texts: Iterable[Text], labels: Array) -> float:
        """Share of the texts whose label is predicted."""
        return float(self.model.score(self.features.transform(texts), labels))

    @cached_property
    def word_weights(self) -> dict[str, float]:
        """|coefficient| x inverse document frequency of each feature, summed over classes.

        Those for the predicted class alone would say which class that is, see `results.trojan`.
        """
        weights = np.abs(self.model.coef_).sum(0) * self.features.idf_  # [V]
        return {term: weights[column] for term, column in self.features.vocabulary_.items()}

    def weigh(self, text: Text) -> tuple[Array, ...]:
        """The weights of the words of a text, S x float64 [N_s]; 0 of unknown ones."""
        weights = self.word_weights
        return tuple(np.array([weights.get(w, 0.0) for w in words]) for words in _words(text))

    def cut(self, texts: Iterable[Text], share: float) -> Iterator[Text]:
        """The words of largest weight, `share` of each text's."""
        for text in texts:
            weights = self.weigh(text)
            kept = [top_share(w[None], np.ones((1, len(w)), bool), share)[0] for w in weights]
            yield kept_words(text, kept)


def _fit(
    read: Any, labels: Array, cost: float, progress: Progress, end: float
) -> LogisticRegression | SGDClassifier:
    """A logistic regression of the features of texts."""
    from sklearn.linear_model import LogisticRegression, SGDClassifier

    classes = np.unique(labels)
    if len(labels) * len(classes) <= _EXACT:
        return LogisticRegression(C=cost, max_iter=1000).fit(read, labels)
    model = SGDClassifier(
        loss="log_loss", alpha=1 / (cost * len(labels)), average=True, random_state=0
    )
    epochs = int(np.clip(_STEPS // len(labels), *_EPOCHS))
    for epoch in range(epochs):
        if not epoch or time.monotonic() < end:
            model.partial_fit(read, labels, classes)
            progress(f"a linear classifier: epoch with C={cost:g}", epoch + 1, epochs)
    return model


def learn_linear(
    prepared: Prepared, progress: Progress = lambda *_: None, end: float = math.inf
) -> Linear | None:
    """The linear classifier of the training texts whose C is best on dev.

    Args:
        end: of the time, by `time.monotonic`: fewer rows and values of C where it is near.

    Returns:
        None where labels are no classes, no two of the rows that are learnt from share a word, or
        all have one label.
    """
    if prepared.labels.kind != "classes":
        return None
    learnt = Linear.learn(*_training(prepared, end), _COSTS, progress, end)
    if not learnt:
        return None
    dev = prepared.split("dev")
    read, labels = learnt[0].features.transform(texts_of(dev)), dev.numbers("label")
    return max(learnt, key=lambda linear: (linear.model.score(read, labels), -linear.cost))


def score_linear(
    prepared: Prepared,
    shares: Mapping[str, float],
    progress: Progress = lambda *_: None,
    end: float = math.inf,
) -> dict[str, dict[str, dict[str, float]]]:
    """Accuracy of the linear classifier on splits.

    Args:
        shares: splits, dev among them, with the share of words that the run keeps.
        end: see `learn_linear`; when it is over, nothing is learnt from cut texts.

    Returns:
        {split: {mode: {"accuracy": share, "kept": share}}}; nothing where nothing can be learnt.
        Mode `linear` reads all words; `weights`, where not all are kept, of each text the share of
        words that weigh most, by this classifier or one learnt from training texts cut like that,
        the better one on dev.
    """
    linear = learn_linear(prepared, progress, end)
    if linear is None:
        return {}
    splits = {name: prepared.split(name) for name in shares}
    labels = {name: split.numbers("label") for name, split in splits.items()}
    scored = {
        name: {"linear": {"accuracy": linear.accuracy(texts_of(split), labels[name]), "kept": 1.0}}
        for name, split in splits.items()
    }
    if shares["dev"] < 1:
        readers = [linear]
        if time.monotonic() < end:
            texts, learnt = _training(prepared, end)
            cut = linear.cut(texts, shares["dev"])
            readers += Linear.learn(cut, learnt, [linear.cost], progress, end)

        def accuracy(reader: Linear, name: str) -> float:
            return reader.accuracy(linear.cut(texts_of(splits[name]), shares[name]), labels[name])

        reader = max(readers, key=lambda reader: accuracy(reader, "dev"))
        for name, share in shares.items():
            scored[name]["weights"] = {"accuracy": accuracy(reader, name), "kept": share}
    return scored


def add_linear(
    run: Path, prepared: Prepared, progress: Progress = lambda *_: None, end: float = math.inf
) -> None:
    """Write the scores of the linear classifier into a run's report, as further modes; arguments as
    of `score_linear`."""
    directory = RunDirectory.open(run)
    report = directory.read_report()
    splits = report["splits"]
    shares = {name: modes.get("thresholded", {}).get("kept", 1.0) for name, modes in splits.items()}
    for name, modes in score_linear(prepared, shares, progress, end).items():
        splits[name] |= modes
    directory.write_report(report)


def linear_rankings(prepared: Prepared, examples: Split) -> dict[str, list[tuple[Array, ...]]]:
    """How much the words of each row weigh in a linear classifier, by name of the ranking.

    Averages over neighbours have weights 1/4, 1/2, 1, 1/2, 1/4.
    """
    linear = learn_linear(prepared)
    if linear is None:
        return {}
    plain = [*map(linear.weigh, texts_of(examples))]
    return {
        "linear weights": plain,
        "linear weights, averaged over neighbours": [tuple(map(_averaged, row)) for row in plain],
    }


def kept_words(text: Text, kept: Sequence[Array]) -> Text:
    """The words of a text whose bits, S x bool [N_s], are set."""
    return tuple(tuple(compress(words, bits)) for words, bits in zip(text, kept, strict=True))


def _averaged(weights: Array) -> Array:
    total, count = (
        convolve1d(values, _NEIGHBOURS, mode="constant")
        for values in (weights, np.ones_like(weights))
    )
    return total / count


def _training(prepared: Prepared, end: float) -> tuple[Iterator[Text], Array]:
    """Texts and labels of the rows that are learnt from, in random order where time may end."""
    train = prepared.split("train")
    mean = max(1.0, train.lengths().sum(1).mean())
    most = min(_MOST_ROWS, int(_MOST_WORDS / mean))
    rows = generator(0, "linear").permutation(len(train))[:most]
    rows = np.sort(rows) if end == math.inf else rows
    return texts_of(train, rows), train.numbers("label")[rows]


def texts_of(split: Split, rows: Array | None = None) -> Iterator[Text]:
    """The words of rows, one row at a time; None: of all."""
    return (split.words(int(row)) for row in (range(len(split)) if rows is None else rows))


def _within(texts: Iterable[Text], total: int, progress: Progress, end: float) -> Iterator[Text]:
    """The texts that are read in half of the time until `end`, and at least a block of them."""
    half = (time.monotonic() + end) / 2
    for number, text in enumerate(texts):
        if number % _BLOCK == 0:
            if number and time.monotonic() > half:
                return
            progress("a linear classifier: reading", number, total)
        yield text


def _words(text: Text) -> list[list[str]]:
    """Features of single words, each with the number of its sentence."""
    return [[f"{slot} {word.lower()}" for word in words] for slot, words in enumerate(text)]


def _terms(text: Text) -> Iterator[str]:
    """Features: words and pairs of neighbouring words."""
    for words in _words(text):
        yield from words
        yield from map(" ".join, pairwise(words))
