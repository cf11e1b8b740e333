"""The plainest alternative to a run: a linear classifier of all words, by scikit-learn.

TF-IDF of words and word pairs, logistic regression with C chosen on dev. A run that scores less
than this on its kept words needs another look.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from rss_rl.data.store import Prepared, Split
from rss_rl.durable import replace_file
from rss_rl.json_files import read_json
from rss_rl.runs.run_directory import LINEAR_FILE, RunDirectory
from rss_rl.seeding import generator
from rss_rl.types import Array

_COSTS = (0.5, 2.0, 8.0, 32.0)
"""Values of C, the inverse of the regularisation."""
_MOST_ROWS = 100_000
"""Rows that are learnt from, drawn at random; more would take minutes and change little."""
_BLOCK = 1000
"""Rows whose labels are read at once."""


def score_linear(prepared: Prepared) -> dict[str, Any] | None:
    """Accuracy of the linear classifier by split, its C, and the seconds that all of it took.

    Returns:
        {"accuracy": {split: share}, "C": C, "seconds": s}; None where labels are no classes, or
        where no two of the rows that are learnt from share a word, or all have one label.
    """
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression

    if prepared.labels.kind != "classes":
        return None
    began = time.monotonic()
    splits = {name: prepared.split(name) for name in prepared.manifest.splits}
    features = TfidfVectorizer(analyzer=_terms, min_df=2, sublinear_tf=True, dtype=np.float32)
    rows = len(splits["train"])
    learnt = np.sort(generator(0, "linear").permutation(rows)[:_MOST_ROWS])
    labels = {name: _labels(split) for name, split in splits.items()}
    if len(np.unique(labels["train"][learnt])) < 2:
        return None
    try:
        train = features.fit_transform(_texts(splits["train"], learnt))
    except ValueError:  # no terms are left
        return None
    others = {
        name: features.transform(_texts(split, np.arange(len(split))))
        for name, split in splits.items()
        if name != "train"
    }
    tried = {
        cost: LogisticRegression(C=cost, max_iter=1000).fit(train, labels["train"][learnt])
        for cost in _COSTS
    }
    best = max(_COSTS, key=lambda cost: tried[cost].score(others["dev"], labels["dev"]))
    accuracy = {name: tried[best].score(rows, labels[name]) for name, rows in others.items()}
    return {"accuracy": accuracy, "C": best, "seconds": round(time.monotonic() - began, 2)}


def write_linear(run: Path, prepared: Prepared) -> None:
    """Keep `score_linear` with a run, in linear.json."""
    found = score_linear(prepared)
    if found is not None:
        found["data_sha256"] = prepared.manifest.digest()
        replace_file(run / LINEAR_FILE, json.dumps(found, indent=2) + "\n")


def read_linear(run: Path) -> dict[str, Any] | None:
    """What `write_linear` kept with a run; None if there is nothing, or it is of other data."""
    path = run / LINEAR_FILE
    found = read_json(path, "Delete the file") if path.is_file() else {}
    own = bool(found) and found.get("data_sha256") == RunDirectory.open(run).data_digest()
    return found if own else None


def _labels(split: Split) -> Array:
    starts = range(0, len(split), _BLOCK)
    blocks = (np.arange(start, min(start + _BLOCK, len(split))) for start in starts)
    return np.concatenate([split.batch(rows).labels for rows in blocks])


def _texts(split: Split, rows: Array) -> Iterator[tuple[tuple[str, ...], ...]]:
    return (split.words(int(row)) for row in rows)


def _terms(sentences: tuple[tuple[str, ...], ...]) -> Iterator[str]:
    """Words and pairs of neighbouring words, each with the number of its text."""
    for slot, words in enumerate(sentences):
        lower = [word.lower() for word in words]
        yield from (f"{slot} {word}" for word in lower)
        yield from (f"{slot} {first} {second}" for first, second in pairwise(lower))
