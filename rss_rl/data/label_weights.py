"""How much each word speaks for each label: weights of a linear model of the training texts.

As features of a word beside its vector, they tell policy and classifier from the first update what
they would else have to learn for each word from few texts (after Wang and Manning 2012, who weight
words by log-count ratios).

Legend: R rows, V words of the vocabulary, C columns: one per class, or one for two classes and for
a score.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import scipy.sparse as sp
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.linear_model import LogisticRegression, Ridge

from rss_rl.types import Array

_FEWEST_ROWS = 2
"""Rows that a word must be in: the weight of a rarer one would say the label of its row."""
_COST = 2.0
"""The inverse of the regularisation."""


def weigh_words(rows: Iterable[tuple[Array, str | float]], words: int) -> Array:
    """Weights float32 [V, C], zero for words of fewer than two rows; all zero if labels are alike.

    Args:
        rows: ids int [N] of the words of a row, and its label: the name of a class, or a score.
        words: V.
    """
    texts, labels = zip(*rows, strict=True)
    ends = np.cumsum([0, *map(len, texts)])
    ones = np.ones(ends[-1], np.float64)
    counts = sp.csr_matrix((ones, np.concatenate(texts), ends), (len(texts), words))
    counts.sum_duplicates()
    often = np.bincount(counts.indices, minlength=words) >= _FEWEST_ROWS  # [V]
    if not often.any() or len(set(labels)) < 2:
        return np.zeros((words, 1), np.float32)
    tfidf = TfidfTransformer(sublinear_tf=True)
    features = tfidf.fit_transform(counts[:, often])
    classes = isinstance(labels[0], str)
    model = LogisticRegression(C=_COST, max_iter=1000) if classes else Ridge()
    model.fit(features, labels)
    weights = np.zeros((words, np.atleast_2d(model.coef_).shape[0]), np.float32)
    weights[often] = (np.atleast_2d(model.coef_) * tfidf.idf_).T
    return weights
