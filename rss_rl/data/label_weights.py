"""How much each word speaks for each label: weights of a linear model of the training texts.

As features of a word beside its vector, they tell policy and classifier from the first update what
they would else have to learn for each word from few texts (after Wang and Manning 2012, who weight
words by log-count ratios).

Legend: R rows, V words of the vocabulary, C columns: one per class, or one for two classes and for
a score.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import scipy.sparse as sp
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.linear_model import LogisticRegression, Ridge

from rss_rl.types import Array

_FEWEST_ROWS = 2
"""Rows that a word must be in: the weight of a rarer one would say the label of its row."""
_MOST_ROWS = 100_000
"""Rows that are learnt from; more would take minutes and change little."""
_COST = 2.0
"""The inverse of the regularisation."""


def weigh_words(texts: Iterable[Array], labels: Sequence[str | float], words: int) -> Array:
    """Weights float32 [V, C], zero for words of fewer than two rows.

    Args:
        texts: ids int [N] of the words of each row. labels: of the rows; names of classes, or
            scores. words: V.
    """
    rows = [np.asarray(ids) for ids, _ in zip(texts, range(_MOST_ROWS), strict=False)]
    ends = np.cumsum([0, *map(len, rows)])
    ones = np.ones(ends[-1], np.float64)
    counts = sp.csr_matrix((ones, np.concatenate(rows), ends), (len(rows), words))
    counts.sum_duplicates()
    often = np.bincount(counts.indices, minlength=words) >= _FEWEST_ROWS  # [V]
    tfidf = TfidfTransformer(sublinear_tf=True)
    features = tfidf.fit_transform(counts[:, often])
    learnt = labels[: len(rows)]
    if isinstance(learnt[0], str):
        model = LogisticRegression(C=_COST, max_iter=1000).fit(features, learnt)
    else:
        model = Ridge().fit(features, learnt)
    weights = np.zeros((words, np.atleast_2d(model.coef_).shape[0]), np.float32)
    weights[often] = (np.atleast_2d(model.coef_) * tfidf.idf_).T
    return weights
