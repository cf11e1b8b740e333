"""Label weights: how much words speak for each label, by linear models of the training texts.

As features of a word beside its vector, they tell policy and classifier from the first update what
they would else have to learn for each word from few texts (after Wang and Manning 2012, who weight
words by log-count ratios). A second model weighs subwords, hashed as in fastText: their sum tells
something of rare words, and of words that no training text has.

Legend: V words of the vocabulary, C columns of labels (1 for two classes and for a score, else the
number of classes), G hashed subwords.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from rss_rl.data.vocabulary import SPECIAL_WORDS, Vocabulary
from rss_rl.types import Array

_FEWEST_ROWS = 2
"""Rows that a word must be in: the weight of a rarer one would say the label of its row."""
_COST = 2.0
"""The inverse of the regularisation."""
_SHORTEST, _LONGEST = 3, 5
"""Characters of a subword; the ends of a word are marked by a space."""
HASHES = 1 << 16
"""G."""


class LabelWeights(NamedTuple):
    """Weights of labels.

    words     float32 [V, 2 C], of the word as a whole and the sum of its subwords'
    subwords  float32 [G, C]
    """

    words: Array
    subwords: Array

    def spread_to(self, deviation: float) -> LabelWeights:
        """All times a factor by which those of the words that have any get a standard deviation."""
        own = self.words[self.words.any(axis=1)].std()
        factor = np.float32(deviation / own if own > 0 else 1.0)
        return LabelWeights(self.words * factor, self.subwords * factor)


def learn_weights(
    rows: Iterable[tuple[Array, str | float]], vocabulary: Vocabulary
) -> LabelWeights:
    """The weights of words and subwords in linear models of the training texts.

    Args:
        rows: ids int [N] of the words of a row, and its label: the name of a class, or a score.

    Returns:
        Zeros for what is in fewer than two rows, and for everything if labels are alike.
    """
    import scipy.sparse as sp  # takes a second, as does scikit-learn

    texts, labels = zip(*rows, strict=True)
    ends, words = np.cumsum([0, *map(len, texts)]), len(vocabulary)
    counts = sp.csr_matrix((np.ones(ends[-1]), np.concatenate(texts), ends), (len(texts), words))
    counts.sum_duplicates()
    pieces = _subword_counts(("",) * len(SPECIAL_WORDS) + vocabulary.words[len(SPECIAL_WORDS) :])
    subwords = _linear_weights(counts @ pieces, labels)
    own = np.concatenate([_linear_weights(counts, labels), pieces @ subwords], axis=1)
    return LabelWeights(own, subwords)


def sum_subwords(words: Sequence[str], subwords: Array) -> Array:
    """The sum [n, C] of the weights [G, C] of each word's subwords."""
    total: Array = _subword_counts(words) @ subwords
    return total


def _subword_counts(words: Sequence[str]) -> Any:
    """How often each word has each subword, a sparse matrix [n, G]."""
    from sklearn.feature_extraction.text import HashingVectorizer

    cut = HashingVectorizer(
        analyzer="char_wb",
        ngram_range=(_SHORTEST, _LONGEST),
        n_features=HASHES,
        lowercase=False,
        alternate_sign=False,
        norm=None,
        dtype=np.float32,
    )
    return cut.transform(words)


def _linear_weights(counts: Any, labels: Sequence[str | float]) -> Array:
    """Weights [F, C] of features that rows have [rows, F] times: TF-IDF, logistic or ridge."""
    from sklearn.feature_extraction.text import TfidfTransformer
    from sklearn.linear_model import LogisticRegression, Ridge

    often = np.bincount(counts.indices, minlength=counts.shape[1]) >= _FEWEST_ROWS  # [F]
    classes, kinds = isinstance(labels[0], str), len(set(labels))
    columns = kinds if classes and kinds > 2 else 1
    weights = np.zeros((counts.shape[1], columns), np.float32)
    if often.any() and kinds > 1:
        tfidf = TfidfTransformer(sublinear_tf=True)
        features = tfidf.fit_transform(counts[:, often])
        model = LogisticRegression(C=_COST, max_iter=1000) if classes else Ridge()
        model.fit(features, labels)
        weights[often] = (np.atleast_2d(model.coef_) * tfidf.idf_).T
    return weights
