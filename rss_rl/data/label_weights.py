"""Label weights: how much words speak for each label, by linear models of the training texts.

As features of a word beside its vector, they tell policy and classifier from the first update what
they would else have to learn for each word from few texts (after Wang and Manning 2012, who weight
words by log-count ratios). A second model weighs subwords, hashed as in fastText: their sum tells
something of rare words, and of words that no training text has.

A weight says the label of the texts that it was learnt from, the more the rarer its word. So the
training texts are dealt into folds, and each is read with weights learnt from the other folds, as a
new text is read with weights that have not seen it (cross-fitting, or stacking: Wolpert 1992).
Texts of the same words are in one fold: a copy in another would tell the label as well.

Legend: B texts, T words of all of them, V words of the vocabulary, C columns of labels (1 for two
classes and for a score, else the number of classes), G hashed subwords, F folds.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Sequence
from itertools import count
from typing import Any, NamedTuple

import numpy as np

from rss_rl.data.sources import Progress
from rss_rl.data.vocabulary import SPECIAL_WORDS, Vocabulary
from rss_rl.seeding import mix, stream_key
from rss_rl.types import LONGEST_WORD, Array

_FEWEST_ROWS = 2
"""Rows that a word must be in: the weight of a rarer one would say the label of its row."""
_COST = 2.0
"""The inverse of the regularisation."""
_STEPS, _FEWEST_EPOCHS = 100_000, 10
"""Texts that a linear model reads, one after another: many classes took minutes by L-BFGS."""
_SHORTEST, _LONGEST = 3, 5
"""Characters of a subword; the ends of a word are marked by a space."""
HASHES = 1 << 16
"""G."""
FOLDS = 5
"""F."""
_DEALT = np.uint64(stream_key(0, "folds"))


class LabelWeights(NamedTuple):
    """Weights of labels.

    words     float32 [V, 2 C], of the word as a whole and the sum of its subwords'
    subwords  float32 [G, C]
    held_out  float32 [F, V, 2 C], of words in training texts: what those of a fold have in place of
              `words`, less these; only of the words of training texts
    """

    words: Array
    subwords: Array
    held_out: Array

    def spread_to(self, deviation: float) -> LabelWeights:
        """All times a factor by which those of the words that have any get a standard deviation."""
        there = self.words.any(axis=1)
        spread = self.words[there].std(dtype=np.float64) if there.any() else 0.0
        factor = np.float32(deviation / spread if spread > 0 else 1.0)
        return LabelWeights(*(weights * factor for weights in self))


def fold_of(ids: Array, lengths: Array) -> Array:
    """The folds, from 1, of training texts, int64 [B]: by a hash of their words in order.

    Args:
        ids: int [T], of the words of all texts, one after another. lengths: int [B], words of each.
    """
    lengths = np.asarray(lengths, dtype=np.int64)
    place = np.arange(len(ids)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    keys = ids.astype(np.uint64) << np.uint64(32) | place.astype(np.uint64)
    total = np.zeros(len(lengths), np.uint64)
    with np.errstate(over="ignore"):
        np.add.at(total, np.repeat(np.arange(len(lengths)), lengths), mix(keys + _DEALT))
        return 1 + (mix(total) % np.uint64(FOLDS)).astype(np.int64)


def learn_weights(
    rows: Iterable[tuple[Array, str | float]],
    vocabulary: Vocabulary,
    progress: Progress = lambda what, done, end: None,
) -> LabelWeights:
    """The weights of words and subwords in linear models of the training texts.

    Args:
        rows: ids int [N] of the words of each, and its label: the name of a class, or a score.
        progress: see `Progress`.

    Returns:
        Zeros for what is in fewer than two rows, and for everything if labels are alike.
    """
    import scipy.sparse as sp  # takes a second, as does scikit-learn

    progress("learning label weights", 0, None)
    texts, labels = zip(*rows, strict=True)
    ids, lengths = np.concatenate(texts), [len(text) for text in texts]
    ends, words = np.cumsum([0, *lengths]), len(vocabulary)
    counts = sp.csr_matrix((np.ones(ends[-1]), ids, ends), (len(texts), words))
    counts.sum_duplicates()
    pieces = _subword_counts(("",) * len(SPECIAL_WORDS) + vocabulary.words[len(SPECIAL_WORDS) :])
    classes = sorted(set(labels)) if isinstance(labels[0], str) else []

    models = count()

    def model(features: Any, of: Array) -> Array:
        progress("learning label weights", next(models), 2 * (FOLDS + 1))
        return _linear_weights(features, np.array(labels)[of], classes)

    def learnt(of: Array) -> tuple[Array, Array]:
        """Weights of words and of subwords, from some rows."""
        subwords = model(counts[of] @ pieces, of)
        return np.concatenate([model(counts[of], of), pieces @ subwords], axis=1), subwords

    folds = fold_of(ids, np.array(lengths))
    everything, subwords = learnt(folds > 0)
    others = [learnt(folds != fold)[0] for fold in range(1, FOLDS + 1)]
    met = slice(vocabulary.trainable)
    return LabelWeights(everything, subwords, np.stack(others)[:, met] - everything[met])


def sum_subwords(words: Sequence[str], subwords: Array) -> Array:
    """The sum [n, C] of the weights [G, C] of each word's subwords.

    By hashes of our own, as a model in use does without scikit-learn, which takes two seconds.
    """
    hashes = (list(map(_hash, _subwords(word[:LONGEST_WORD]))) for word in words)
    return np.stack([subwords[each].sum(0) for each in hashes])


def _subwords(word: str) -> Iterator[str]:
    """Those of HashingVectorizer, which cuts at white space."""
    for part in word.split():
        marked = f" {part} "
        for size in range(_SHORTEST, _LONGEST + 1):
            yield from (marked[at : at + size] for at in range(max(1, len(marked) - size + 1)))
            if size >= len(marked):
                break


def _hash(subword: str) -> int:
    """Its row among G: the size of its MurmurHash3 as a signed number, as in HashingVectorizer."""
    data, bits = subword.encode(), 0xFFFFFFFF
    value = 0
    for at in range(0, len(data) + 1, 4):
        block = int.from_bytes(data[at : at + 4], "little") * 0xCC9E2D51 & bits
        value ^= (block << 15 | block >> 17) * 0x1B873593 & bits
        if at + 4 <= len(data):
            value = ((value << 13 | value >> 19) * 5 + 0xE6546B64) & bits
    value ^= len(data)
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        value = (value ^ value >> shift) * factor & bits
    value ^= value >> 16
    return min(value, bits + 1 - value) % HASHES


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
    return cut.transform(word[:LONGEST_WORD] for word in words)


def _linear_weights(counts: Any, labels: Array, classes: Sequence[str]) -> Array:
    """Weights [n, C] of features that rows have [rows, n] times: TF-IDF, logistic or ridge.

    Args:
        labels: of the rows; perhaps not all `classes` are among them. classes: none for scores.
    """
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.feature_extraction.text import TfidfTransformer
    from sklearn.linear_model import LogisticRegression, Ridge

    often = np.bincount(counts.indices, minlength=counts.shape[1]) >= _FEWEST_ROWS  # [n]
    columns = len(classes) if len(classes) > 2 else 1
    weights = np.zeros((counts.shape[1], columns), np.float32)
    if not often.any() or len(np.unique(labels)) < 2:
        return weights
    tfidf = TfidfTransformer(sublinear_tf=True)
    features = tfidf.fit_transform(counts[:, often])
    epochs = max(_FEWEST_EPOCHS, _STEPS // len(labels))
    model = LogisticRegression(C=_COST, solver="saga", max_iter=epochs, tol=0, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # the last digits do not matter
        slopes = np.atleast_2d((model if classes else Ridge()).fit(features, labels).coef_)
    if columns == 1:
        weights[often] = (slopes * tfidf.idf_).T
        return weights
    if len(slopes) == 1:  # two of several: half a weight for the one, half against the other
        slopes = np.concatenate([-slopes, slopes]) / 2
    there = np.isin(classes, model.classes_)
    weights[np.ix_(often, there)] = (slopes * tfidf.idf_).T
    return weights
