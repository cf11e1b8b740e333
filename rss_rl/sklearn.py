"""`fit` as a scikit-learn estimator, for pipelines, cross-validation and searches.

from rss_rl.sklearn import SelectiveClassifier

model = SelectiveClassifier(keep=0.3, time="2m").fit(texts, labels)
model.predict(["A dull film with one good scene."])
model.select(["A dull film with one good scene."])  # [["dull", "good"]]
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from io import StringIO
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import pandas as pd
from rich.console import Console
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import InputTags, Tags, column_or_1d
from sklearn.utils.validation import check_is_fitted

import rss_rl
from rss_rl.data.checks import check_alike, is_missing, text_key
from rss_rl.data.corpora.cuts import cut_texts
from rss_rl.data.shard import LEAST_WEIGHT
from rss_rl.errors import DataError
from rss_rl.inference.artifact import pack_model
from rss_rl.inference.explanation import Explanation
from rss_rl.inference.model import load_model
from rss_rl.types import Array

_DEV_SHARE = 0.1
"""Of the rows, held out to choose the best checkpoint."""


class SelectiveClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A classifier that reads only the words that a policy keeps.

    X is a list, Series or array of texts, or, for pairs, of two columns. y are classes of any type
    that numpy sorts. A tenth of the rows is held out to choose the best checkpoint.

    Pickling saves the exported model, not torch's objects. Of scikit-learn's estimator checks,
    those that fit numbers do not apply: X are texts.

    Args:
        keep: share of the words to keep; None: 0.4, of long texts 0.2.
        pretrained: folder or Hugging Face name of a transformer, see `rss_rl.fit`.
        config: configuration to train with, see `rss_rl.fit`.
        vectors: files or names of word vectors, see `rss_rl.prepare`.
        class_weight: "balanced": all classes count the same, see `rss_rl.fit`.
        time: limit of the training, such as "2m"; None: as long as it takes.
        settings: KEY=VALUE settings of the run, as a mapping.
        seed: of weights, selections and the rows held out.
        verbose: print what is chosen, and progress.

    Attributes:
        classes_: the classes, sorted.
        report_: scores of the held-out rows by selection and metric.
    """

    def __init__(
        self,
        keep: float | None = None,
        *,
        pretrained: str | None = None,
        config: str | None = None,
        vectors: Sequence[str] | None = None,
        class_weight: Literal["balanced"] | None = None,
        time: str | float | None = None,
        settings: Mapping[str, Any] | None = None,
        seed: int = 0,
        verbose: bool = False,
    ) -> None:
        self.keep = keep
        self.pretrained = pretrained
        self.config = config
        self.vectors = vectors
        self.class_weight = class_weight
        self.time = time
        self.settings = settings
        self.seed = seed
        self.verbose = verbose

    def __sklearn_tags__(self) -> Tags:
        tags: Tags = super().__sklearn_tags__()
        tags.input_tags = InputTags(one_d_array=True, two_d_array=False, string=True)
        return tags

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Train on texts and their classes.

        Args:
            sample_weight: how often each row counts, [n]; None: once.

        Raises:
            RssError: any expected failure; the estimator is as it was.
            KeyboardInterrupt: Ctrl-C.
        """
        examples = _examples(X)
        classes, numbers = _classes(y)
        if len(examples) != len(numbers):
            raise DataError(f"{len(examples)} texts and {len(numbers)} classes")
        if len(classes) < 2:
            raise DataError("one class alone", where="y", remedy="Give rows of two or more classes")
        rows: list[dict[str, Any]] = [
            _row(number, example) | {"label": f"{n:05d}"}  # names that sort as the classes do
            for number, (example, n) in enumerate(zip(examples, numbers, strict=True))
        ]
        if sample_weight is not None:
            weights = _weights(sample_weight, len(rows))
            rows = [row | {"weight": w} for row, w in zip(rows, weights.tolist(), strict=True)]
            counted = np.flatnonzero(weights >= LEAST_WEIGHT)
            rows, numbers = [rows[row] for row in counted], numbers[counted]
        held = self._held_out(rows, numbers, len(classes))
        dev = [rows[row] for row in np.flatnonzero(held)]
        settings = {"seed": self.seed, "evaluation.all_tokens": False} | dict(self.settings or {})
        with tempfile.TemporaryDirectory(prefix="rss-rl-") as folder:
            run = rss_rl.fit(
                [rows[row] for row in np.flatnonzero(~held)],
                settings,
                text="text",
                text_b="text_b" if "text_b" in rows[0] else None,
                label="label",
                weight=None if sample_weight is None else "weight",
                task="classes",
                dev=dev,
                test=dev,
                keep=self.keep,
                pretrained=self.pretrained,
                config=self.config,
                vectors=self.vectors,
                class_weight=self.class_weight,
                time=self.time,
                out=Path(folder) / "run",
                console=None if self.verbose else Console(file=StringIO()),
            )
            if not run.finished:
                # A stop that asks to continue later, of a run that nobody can continue.
                raise KeyboardInterrupt
            report = run.report["splits"]["dev"]
            packed = pack_model(run.path)
        self._model = load_model(packed)
        self.classes_, self.report_, self._packed = classes, report, packed
        return self

    def _held_out(self, rows: Sequence[Mapping[str, Any]], numbers: Array, classes: int) -> Array:
        """bool [n], True = in the development split: of each class a tenth, and at least one."""
        texts = ("text", "text_b")
        keys = [text_key([row[name] for name in texts if name in row]) for row in rows]
        share = max(_DEV_SHARE, classes / len(rows))
        shares = {"train": 1 - share, "dev": share}
        held: Array = cut_texts(np.array(keys, np.uint64), numbers, shares, self.seed) > 0
        if not held.any():
            raise DataError("each class has a single text", where="y", remedy="Give more rows")
        return held

    def predict(self, X: Any) -> Array:
        """The most probable class of each text."""
        chances = self.predict_proba(X)
        return self.classes_[chances.argmax(1)]  # type: ignore[no-any-return]

    def predict_proba(self, X: Any) -> Array:
        """Probabilities [n, classes], in the order of `classes_`."""
        explanations = self._read(X, None)
        probabilities = np.zeros((len(explanations), len(self.classes_)))
        for row, each in zip(probabilities, explanations, strict=True):
            for name, chance in (each.class_probabilities or {}).items():
                row[int(name)] = chance
        return probabilities

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Share of the rows that are predicted right, also of classes that scikit-learn's own
        `score` does not know, such as pandas' periods."""
        right = pd.Series(self.predict(X)) == pd.Series(_values(y))
        return float(np.average(right, weights=sample_weight))

    def select(self, X: Any, share: float | None = None) -> list[Any]:
        """The kept words of each text, in its order; of pairs, a tuple of two lists.

        Args:
            share: of each text's words, to keep instead of those that the policy keeps.
        """
        kept = [tuple(s.kept_words for s in each.sentences) for each in self._read(X, share)]
        return [words[0] if len(words) == 1 else words for words in kept]

    def _read(self, X: Any, share: float | None) -> list[Explanation]:
        check_is_fitted(self)
        return self._model.predict(_examples(X), share=share)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in super().__getstate__().items() if name != "_model"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        if "_packed" in state:
            self._model = load_model(self._packed)


def _examples(texts: Any) -> list[Any]:
    """Texts, or pairs of them, from what scikit-learn passes around.

    Raises:
        DataError: a single text, a mapping, or a table of more than two columns.
    """
    if isinstance(texts, str | Mapping):
        raise DataError("expected texts, got one", where="X", remedy='Give a list: ["A text."]')
    array = np.asarray(texts, dtype=object)
    if array.ndim == 2 and array.shape[1] == 2:
        return [tuple(pair) for pair in array]
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1:
        raise DataError(
            f"X of shape {array.shape} is neither texts nor pairs of texts",
            remedy="Give one column of texts, such as table['text'], or two columns",
        )
    return array.tolist()  # type: ignore[no-any-return]


def _row(number: int, example: Any) -> dict[str, str]:
    """The columns of an example.

    Raises:
        DataError: something is no text, as what pandas has for an empty cell.
    """
    texts = example if isinstance(example, tuple) else (example,)
    for text in texts:
        if not isinstance(text, str):
            raise DataError(
                f"{text!r:.40} is no text", where=f"X, row {number}", remedy="Take the row out"
            )
    return dict(zip(("text", "text_b"), texts, strict=False))


def _weights(sample_weight: Any, count: int) -> Array:
    """The weights of rows, float64 [count] with mean 1.

    Raises:
        DataError: they are no such weights.
    """
    try:
        weights = np.asarray(sample_weight, np.float64)
    except (TypeError, ValueError):
        weights = np.full(1, np.nan)
    fits = weights.shape == (count,) and (np.isfinite(weights) & (weights >= 0)).all()
    if not fits or not weights.any():
        what = f"are not {count} numbers of 0 or more, and one above"
        raise DataError(what, where="sample_weight", remedy="Give one for each text")
    return weights / weights.mean()  # type: ignore[no-any-return]


def _classes(labels: Any) -> tuple[Array, Array]:
    """The different labels, sorted, in the type of their values, and the place there of each.

    Raises:
        DataError: labels are missing, in any notation, or alike, or cannot be sorted.
    """
    values = _values(labels)
    missing = pd.isna(values) | [isinstance(value, str) and is_missing(value) for value in values]
    if missing.any():
        rows = ", ".join(map(str, np.flatnonzero(missing)[:10]))
        raise DataError(
            f"missing labels: {missing.sum()}",
            where=f"y, row {rows}",
            remedy="Write them, or take the rows out",
        )
    try:
        classes, numbers = np.unique(values, return_inverse=True)
    except TypeError as error:
        raise DataError(
            f"the labels cannot be sorted ({error})", where="y", remedy="Give labels of one type"
        ) from error
    check_alike([name for name in classes.tolist() if isinstance(name, str)], "y")
    return classes, numbers


def _values(labels: Any) -> Array:
    """Labels in one dimension, in the type of their values."""
    if np.ma.is_masked(labels):
        labels = pd.Series(labels.ravel())
    values = labels.to_numpy() if hasattr(labels, "to_numpy") else np.asarray(labels)
    if values.dtype.kind == "U" and not all(isinstance(label, str) for label in labels):
        values = np.asarray(labels, object)  # where numpy would write numbers as text
    return column_or_1d(values)  # type: ignore[no-any-return]
