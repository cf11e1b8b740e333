"""Label weights: those of a linear classifier of the training texts, beside the vectors."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression, Ridge

from rss_rl.data.prepare import prepare
from rss_rl.data.sources import RawExample
from rss_rl.data.store import open_prepared
from rss_rl.data.vectors import weigh_words
from rss_rl.errors import DataError
from rss_rl.types import LabelSpec

TEXTS = ("a fine film", "a fine song", "a dull film", "a dull song", "a rare song")
LABELS = ("good", "good", "bad", "bad", "bad")


def rows(labels: tuple[Any, ...] = LABELS) -> list[RawExample]:
    pairs = zip(TEXTS, labels, strict=True)
    return [RawExample(f"r{i}", (text,), label) for i, (text, label) in enumerate(pairs)]


@pytest.mark.parametrize("labels", [LABELS, (1.0, 0.9, 0.1, 0.0, 0.2), ("x", "y", "z", "x", "z")])
def test_they_are_those_of_a_linear_model_of_the_texts(labels: tuple[Any, ...]) -> None:
    words = sorted({word for text in TEXTS for word in text.split()})
    ids = [np.array([words.index(word) for word in text.split()]) for text in TEXTS]
    found = weigh_words(zip(ids, labels, strict=True), len(words))
    tfidf = TfidfVectorizer(sublinear_tf=True, min_df=2, token_pattern=r"\S+")
    features = tfidf.fit_transform(TEXTS)
    scores = isinstance(labels[0], float)
    model = Ridge() if scores else LogisticRegression(C=2.0, max_iter=1000)
    kept = [words.index(word) for word in tfidf.get_feature_names_out()]
    wanted = (np.atleast_2d(model.fit(features, labels).coef_) * tfidf.idf_).T
    np.testing.assert_allclose(found[kept], wanted, rtol=1e-4, atol=1e-5)
    assert not found[words.index("rare")].any()


@pytest.mark.parametrize("labels", [("x",) * 5, (0.5,) * 5])
def test_labels_that_are_all_alike_give_no_weight(labels: tuple[Any, ...]) -> None:
    rows = [(np.array([2, 3]), label) for label in labels]
    assert not weigh_words(rows, 4).any()


def test_they_stand_beside_the_vectors(tmp_path: Path, list_source: Callable[..., Any]) -> None:
    glove = tmp_path / "glove.txt"
    glove.write_text("fine 1 2 3\ndull 4 5 6\nfilm 1 0 1\n")
    source = list_source(
        {"train": rows(), "test": rows()[:2]}, LabelSpec("classes", ("bad", "good"))
    )
    tables = {}
    for name, files in (("random", ()), ("glove", (glove,))):
        for weighed in (False, True):
            out = tmp_path / f"{name}-{weighed}"
            info = prepare(source, out, vectors=files, dim=4, label_weights=weighed).vectors
            tables[name, weighed] = load_file(out / "vectors.safetensors")["vectors"]
            assert info.label_weights == int(weighed)
            assert info.dim == tables[name, weighed].shape[1]
    words = open_prepared(tmp_path / "glove-True").vocabulary.words
    for name in ("random", "glove"):
        plain, weighed = tables[name, False], tables[name, True]
        np.testing.assert_array_equal(weighed[:, :-1], plain)
        own = dict(zip(words, weighed[:, -1], strict=True))
        assert own["fine"] > 0 > own["dull"]
        assert own["rare"] == own["<pad>"] == own["<unk>"] == 0
        spread = 1.2 if name == "random" else 3 * plain[plain[:, 0] >= 1].std()
        assert weighed[:, -1][weighed[:, -1] != 0].std() == pytest.approx(spread, rel=1e-3)


def test_labels_that_choose_a_word_have_none(
    tmp_path: Path, list_source: Callable[..., Any]
) -> None:
    source = list_source({"train": rows()}, LabelSpec("sentence"))
    with pytest.raises(DataError, match="--label-weights out"):
        prepare(source, tmp_path / "out", label_weights=True)
