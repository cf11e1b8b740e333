"""Texts a second that a trained model reads on one thread, and one text, beside pipelines.

The model is that of `rss-rl demo --real`, the texts those that it was trained on, as a user would
give them. The pipelines learn from them, too: TF-IDF and logistic regression, and the mean of
static word vectors (the model's own, as model2vec does) and logistic regression.
"""

from __future__ import annotations

__all__ = ["reading"]

import contextlib
import io
import itertools
import re
import statistics
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from suite.records import Record, compared
from suite.timing import CLOCKS, Settings, in_turns, seconds_of

import rss_rl
from rss_rl.data.store import open_prepared

_TEXTS, _SINGLE = 6_000, 200
Reader = Callable[[Sequence[str]], object]


def reading(settings: Settings) -> Iterator[Record]:
    """Many texts at once, and one after the other."""
    torch.set_num_threads(1)
    with TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        rss_rl.demo(real=True, out=Path(folder) / "run")
        model = rss_rl.load(Path(folder) / "run")
        split = open_prepared(Path(folder) / "run-data").split("train")
        texts = [" ".join(split.words(row)[0]) for row in range(len(split))]
        labels = split.batch(np.arange(len(split))).labels
    readers: dict[str, Reader] = {"ours": model.predict}
    for name, features in _features(model).items():
        pipeline = make_pipeline(features, LogisticRegression(max_iter=1000)).fit(texts, labels)
        readers[name] = pipeline.predict_proba
    many = list(itertools.islice(itertools.cycle(texts), _TEXTS))

    def rate(read: Reader) -> float:
        return _TEXTS / seconds_of(lambda: read(many), settings.clock)

    def one(read: Reader) -> float:
        return 1e3 * statistics.median(_seconds(read, texts[:_SINGLE], CLOCKS[settings.clock]))

    for what, measure, unit in (("6,000 texts", rate, "texts/s"), ("one text", one, "ms")):
        turns = {name: partial(measure, read) for name, read in readers.items()}
        measured = in_turns(turns, settings.repeats)
        for name in list(readers)[1:]:
            yield compared(f"reading/{what}, {name}", measured["ours"], measured[name], unit)


def _seconds(read: Reader, texts: Sequence[str], clock: Callable[[], float]) -> Iterator[float]:
    for text in texts:
        started = clock()
        read([text])
        yield clock() - started


def _features(model: Any) -> dict[str, Any]:
    """What the pipelines read."""
    ids = {word: number for number, word in enumerate(model.inputs.vocabulary.words)}
    table = model.models.classifier.embedding(torch.arange(len(ids))).detach().numpy()
    words = re.compile(r"\w+|[^\w\s]")

    def means(texts: Sequence[str]) -> Any:
        rows = ([ids.get(word, 1) for word in words.findall(text.lower())] for text in texts)
        return np.stack([table[each or [1]].mean(0) for each in rows])

    return {
        "TF-IDF and logistic regression": TfidfVectorizer(ngram_range=(1, 2)),
        "static vectors and logistic regression": FunctionTransformer(means),
    }
