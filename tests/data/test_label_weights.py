"""Label weights: those of a linear classifier of the training texts, beside the vectors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression, Ridge

from rss_rl.data.label_weights import (
    FOLDS,
    HASHES,
    LabelWeights,
    _subword_counts,
    fold_of,
    learn_weights,
    sum_subwords,
)
from rss_rl.data.prepare import prepare
from rss_rl.data.sources import RawExample
from rss_rl.data.store import open_prepared
from rss_rl.data.vocabulary import Vocabulary
from rss_rl.errors import DataError
from rss_rl.models.embedding import WordEmbedding
from rss_rl.types import FOLD_BIT, LabelSpec

TEXTS = ("a fine film", "a fine song", "a dull film", "a dull song", "a rare song")
LABELS = ("good", "good", "bad", "bad", "bad")


def rows(labels: tuple[Any, ...] = LABELS) -> list[RawExample]:
    pairs = zip(TEXTS, labels, strict=True)
    return [RawExample(f"r{i}", (text,), label) for i, (text, label) in enumerate(pairs)]


def vocabulary(texts: tuple[str, ...]) -> Vocabulary:
    return Vocabulary.count(Counter(word for text in texts for word in text.split()), Counter())


def learnt(texts: tuple[str, ...], labels: Sequence[Any], words: Vocabulary) -> LabelWeights:
    ids = [words.ids(text.split()) for text in texts]
    return learn_weights(zip(ids, labels, strict=True), words)


def folds_of(texts: Sequence[str], words: Vocabulary) -> Any:
    ids = [words.ids(text.split()) for text in texts]
    return fold_of(np.concatenate(ids), np.array(list(map(len, ids))))


@pytest.mark.parametrize("labels", [LABELS, (1.0, 0.9, 0.1, 0.0, 0.2), ("x", "y", "z", "x", "z")])
def test_they_are_those_of_linear_models_of_the_texts(labels: tuple[Any, ...]) -> None:
    words = vocabulary(TEXTS)
    found = learnt(TEXTS, labels, words)
    columns = 3 if labels[0] == "x" else 1
    scores = isinstance(labels[0], float)

    def model(tfidf: TfidfVectorizer) -> dict[str, Any]:
        learnt = Ridge() if scores else LogisticRegression(C=2.0, max_iter=1000)
        learnt.fit(tfidf.fit_transform(TEXTS), labels)
        names = tfidf.get_feature_names_out()
        return dict(zip(names, (np.atleast_2d(learnt.coef_) * tfidf.idf_).T, strict=True))

    by_word = model(TfidfVectorizer(sublinear_tf=True, min_df=2, token_pattern=r"\S+"))
    by_piece = model(
        TfidfVectorizer(sublinear_tf=True, min_df=2, analyzer="char_wb", ngram_range=(3, 5))
    )
    none = np.zeros(columns)
    for number, word in enumerate(words.words[2:], start=2):
        wanted = by_word.get(word, none)
        np.testing.assert_allclose(found.words[number, :columns], wanted, rtol=1e-2, atol=2e-3)
        summed = sum((by_piece.get(piece, none) for piece in pieces(word)), none)
        np.testing.assert_allclose(found.words[number, columns:], summed, rtol=1e-2, atol=2e-3)
        np.testing.assert_allclose(
            sum_subwords([word], found.subwords)[0], summed, rtol=1e-2, atol=2e-3
        )
    assert not found.words[:2].any()  # padding, and the unknown word
    assert "rare" not in by_word


def pieces(word: str) -> list[str]:
    """Its parts of 3 to 5 characters; a word that is shorter than a part is one itself."""
    whole, found = f" {word} ", []
    for size in (3, 4, 5):
        found += [whole[at : at + size] for at in range(max(1, len(whole) - size + 1))]
        if len(whole) <= size:
            break
    return found


def test_a_word_that_no_text_has_is_known_by_its_parts() -> None:
    texts = ("a wonderful film", "a wonderful song", "an awful film", "an awful song")
    words = vocabulary(texts)
    subwords = learnt(texts, ("good", "good", "bad", "bad"), words).subwords
    good, bad, other = sum_subwords(["wonderfully", "awfully", "xyz"], subwords)[:, 0]
    assert good > 0 > bad
    assert other == 0


@given(words=st.lists(st.text(max_size=12), min_size=1, max_size=5))
def test_parts_of_a_word_are_those_of_scikit_learn(words: list[str]) -> None:
    weights = np.random.default_rng(0).normal(size=(HASHES, 2)).astype(np.float32)
    words = [word.encode(errors="ignore").decode() for word in words]
    expected = _subword_counts(words) @ weights
    np.testing.assert_allclose(sum_subwords(words, weights), expected, atol=1e-3)


def test_words_of_one_text_each_have_as_many_columns_as_their_parts() -> None:
    texts = ("wonderful", "wonderfully", "awful", "awfully", "middling")
    words = vocabulary(texts)
    found = learnt(texts, "aabbc", words)
    assert found.words.shape == (len(words), 2 * found.subwords.shape[1])
    assert not found.words[:, :3].any()
    assert found.words[2:, 3:].any(1).sum() == 4


@pytest.mark.parametrize("labels", [("x",) * 5, (0.5,) * 5])
def test_labels_that_are_all_alike_give_no_weight(labels: tuple[Any, ...]) -> None:
    words = vocabulary(TEXTS)
    found = learnt(TEXTS, labels, words)
    assert not any(weights.any() for weights in found)


@settings(max_examples=30)
@given(st.lists(st.lists(st.integers(0, 5), max_size=4), min_size=1, max_size=40))
def test_copies_of_a_text_are_in_one_fold(texts: list[list[int]]) -> None:
    """However many, and wherever they stand; other texts are dealt by chance."""
    ids = np.array([word for text in texts for word in text], np.int64)
    lengths = np.array([*map(len, texts)])
    folds = fold_of(ids, lengths)
    alone = [fold_of(np.array(text, dtype=np.int64), np.array([len(text)]))[0] for text in texts]
    np.testing.assert_array_equal(folds, alone)
    assert set(folds.tolist()) <= set(range(1, FOLDS + 1))


def test_folds_are_of_one_size() -> None:
    pairs = np.indices((80, 80)).reshape(2, -1).T  # they differ in the order of words, too
    counts = np.bincount(fold_of(pairs.ravel(), np.full(len(pairs), 2)))[1:]
    assert counts.min() > 0.9 * len(pairs) / FOLDS


NINE = tuple(f"a {first} {second}" for first in ("dull", "fine", "odd") for second in "xyz")
_DEALT = folds_of(NINE, vocabulary(NINE))
_FIRST = _DEALT[0] == _DEALT  # rows of the first one's fold


@pytest.mark.parametrize(
    "labels",
    [
        "abcabcabc",
        np.where(_FIRST, "a", "b").tolist(),
        np.where(_FIRST, "a", np.tile(["b", "c", "c"], 3)).tolist(),
        (0.1, 0.9, 0.2, 0.8, 0.5, 0.4, 0.3, 0.7, 1.0),
    ],
)
def test_a_training_text_is_read_with_weights_that_have_not_seen_it(labels: Sequence[Any]) -> None:
    texts, words = NINE, vocabulary(NINE)
    found = learnt(texts, labels, words)
    assert found.held_out.shape == (FOLDS, words.trainable, found.words.shape[1])
    columns = found.subwords.shape[1]
    for row in range(len(texts)):
        folds = folds_of(texts, words)
        others = np.flatnonzero(folds != folds[row]).tolist()
        alone = learnt(tuple(texts[i] for i in others), [labels[i] for i in others], words)
        read = found.words[: words.trainable] + found.held_out[folds[row] - 1]
        wanted = alone.words[: words.trainable]
        if alone.subwords.shape[1] == columns:
            np.testing.assert_allclose(read, wanted, atol=1e-5)
        else:  # the others lack one of three classes
            (lacked,) = set(range(3)) - {"abc".index(labels[i]) for i in others}
            assert not read[:, [lacked, columns + lacked]].any()
            one, two = sorted({0, 1, 2} - {lacked})
            halves = read[:, [two, columns + two]] - read[:, [one, columns + one]]
            np.testing.assert_allclose(halves, wanted, atol=1e-5)


@pytest.mark.parametrize(("limit", "most"), [("_WEIGHED_WORDS", 300), ("_WEIGHED_ROWS", 100)])
def test_of_many_texts_some_are_drawn_though_labels_come_in_turns(
    limit: str,
    most: int,
    tmp_path: Path,
    list_source: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(f"rss_rl.data.prepare.{limit}", most)
    drawn = []

    def learn(rows: Iterable[Any], *others: Any) -> LabelWeights:
        drawn.extend(rows)
        return learn_weights(drawn, *others)

    monkeypatch.setattr("rss_rl.data.prepare.learn_weights", learn)
    turns = [("a fine film", "good"), ("a dull film", "bad")] * 100
    examples = [RawExample(f"r{i}", (text,), label) for i, (text, label) in enumerate(turns)]
    source = list_source(
        {"train": examples, "test": examples[:2]}, LabelSpec("classes", ("bad", "good"))
    )
    prepare(source, tmp_path / "out", dim=4, label_weights=True)
    prepared = open_prepared(tmp_path / "out")
    own = dict(zip(prepared.vocabulary.words, prepared.vectors()[:, -2], strict=True))
    assert own["fine"] > 0 > own["dull"]
    assert 70 < len(drawn) < 130


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
            assert info.label_weights == 2 * weighed
            assert info.dim == tables[name, weighed].shape[1]
    words = open_prepared(tmp_path / "glove-True").vocabulary.words
    for name in ("random", "glove"):
        plain, weighed = tables[name, False], tables[name, True]
        np.testing.assert_array_equal(weighed[:, :-2], plain)
        for column in (-2, -1):
            own = dict(zip(words, weighed[:, column], strict=True))
            assert own["fine"] > 0 > own["dull"]
            assert own["<pad>"] == own["<unk>"] == 0
        spread = 1.2 if name == "random" else 3 * plain[plain[:, 0] >= 1].std()
        own = weighed[weighed[:, -2:].any(1), -2:]
        assert own.std() == pytest.approx(spread, rel=1e-3)
        subwords = open_prepared(tmp_path / f"{name}-True").subwords
        assert subwords is not None
        np.testing.assert_allclose(sum_subwords(words[2:], subwords), weighed[2:, -1:], atol=1e-4)
        assert open_prepared(tmp_path / f"{name}-False").subwords is None
        assert open_prepared(tmp_path / f"{name}-False").held_out() is None


@pytest.mark.parametrize("joined", [False, True])
def test_words_met_after_training_keep_their_vectors_as_more_come(joined: bool) -> None:
    table = np.arange(12, dtype=np.float32).reshape(4, 3)
    embedding = WordEmbedding(table, trainable=2)
    for _ in range(2 if joined else 0):
        embedding.join()
    assert embedding.state_dict()["trainable"].tolist() == table[:2].tolist()
    added = torch.randn(50, 3)
    for first in range(0, 50, 5):
        embedding.add_words(added[first : first + 5])
    with torch.no_grad():
        found = embedding(torch.arange(54), padding=None)
    torch.testing.assert_close(found, torch.cat([torch.from_numpy(table), added]))


def test_batches_of_training_texts_hold_the_folds(
    tmp_path: Path, list_source: Callable[..., Any]
) -> None:
    source = list_source(
        {"train": rows(), "test": rows()[:2]}, LabelSpec("classes", ("bad", "good"))
    )
    prepare(source, tmp_path / "out", dim=4, label_weights=True)
    prepared = open_prepared(tmp_path / "out")
    assert prepared.split("test").batch([0, 1]).folds is None
    batch = prepared.split("train").batch([4, 0, 1])
    assert batch.folds is not None
    texts = [TEXTS[row] for row in (4, 0, 1)]
    folds = folds_of(texts, prepared.vocabulary).tolist()
    assert batch.folds.tolist() == folds
    again = batch.take(np.array([1])).repeat(2).folds
    assert again is not None
    assert again.tolist() == [folds[1]] * 2
    (ids,) = batch.ids
    np.testing.assert_array_equal(ids >> FOLD_BIT, batch.folds[:, None] * batch.valid[0])
    embedding = WordEmbedding(prepared.vectors(), prepared.vocabulary.trainable)
    changes = prepared.held_out()
    assert changes is not None
    plain = embedding(torch.from_numpy(batch.tokens[0]))
    embedding.hold_out(changes)
    assert torch.equal(embedding(torch.from_numpy(batch.tokens[0])), plain)
    read = embedding(torch.from_numpy(ids)).detach().numpy()
    for row, fold in enumerate(folds):
        wanted = plain[row].detach().numpy().copy()
        wanted[:, -2:] += changes[fold - 1, batch.tokens[0][row]]
        np.testing.assert_allclose(read[row], wanted, atol=1e-6)


def test_labels_that_choose_a_word_have_none(
    tmp_path: Path, list_source: Callable[..., Any]
) -> None:
    source = list_source({"train": rows()}, LabelSpec("sentence"))
    with pytest.raises(DataError, match="--label-weights out"):
        prepare(source, tmp_path / "out", label_weights=True)
