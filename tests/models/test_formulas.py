"""Whole modules against slow numpy twins in the notation of the papers.

Legend: M sentences of a padded batch, each compared with the twin of the sentence alone.
"""

from __future__ import annotations

import numpy as np
import pytest
import small
import torch
import twins
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from rss_rl.models.layers import Source2Token
from rss_rl.models.sentences import SentencesClassifier

LENGTHS = (6, 1, 3, 2)
ACTIVATIONS = ["relu", "elu"]


def embedded(model: SentencesClassifier, tokens: Tensor, valid: Tensor) -> list[np.ndarray]:
    """x of each sentence, without its padding."""
    vectors = model.embedding(tokens).detach().numpy()
    return [x[real] for x, real in zip(vectors, valid.numpy(), strict=True)]


def bits(selection: Tensor, valid: Tensor) -> list[tuple[np.ndarray, np.ndarray]]:
    """z^h and z^d of each sentence, without its padding."""
    return [
        (row[0][real], row[1][real])
        for row, real in zip(selection.numpy(), valid.numpy(), strict=True)
    ]


def encode(
    model: SentencesClassifier, tokens: Tensor, valid: Tensor, selection: Tensor
) -> np.ndarray:
    return model._encode(tokens, valid, selection).detach().numpy()


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_source2token(activation: str) -> None:
    module = Source2Token(4, activation, 0.0).double()
    small.randomise(module)
    values = torch.randn(3, 5, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    kept = torch.tensor([[True] * 5, [False, True, False, True, False], [False] * 5])
    result = module(values, kept).detach().numpy()
    p = twins.parameters(module)
    for row in range(3):
        wanted = twins.source2token(values[row].numpy()[kept[row].numpy()], p, activation)
        np.testing.assert_allclose(result[row], wanted, rtol=1e-10, atol=1e-12)
    assert not result[2].any()


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("keep_unselected", [True, False], ids=["paper", "faithful"])
@settings(max_examples=15)
@given(seed=st.integers(0, 10**6), share=st.sampled_from([0.0, 0.3, 0.7, 1.0]))
def test_resan(activation: str, keep_unselected: bool, seed: int, share: float) -> None:
    form = {"keep_unselected": keep_unselected}
    model = small.classifier(seed=seed, activation=activation, **form)
    tokens, valid = small.sentences(*LENGTHS, seed=seed)
    selection = small.selection(valid, share, seed)
    result = encode(model, tokens, valid, selection)
    p = twins.parameters(model.encoder)
    for row, (x, (zh, zd)) in enumerate(
        zip(embedded(model, tokens, valid), bits(selection, valid), strict=True)
    ):
        wanted = twins.resan(x, zh, zd, p, activation, 5.0, **form)
        np.testing.assert_allclose(result[row], wanted, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("form", ["resan", "faithful"])
@pytest.mark.parametrize("explicit", [True, False])
def test_selecting_everything_is_disan(form: str, explicit: bool) -> None:
    model = small.classifier(sentences=1, **small.VARIANTS[form])
    tokens, valid = small.sentences(*LENGTHS)
    selection = small.selection(valid, 1.0) if explicit else None
    logits = model([tokens], [valid], None if selection is None else [selection])
    p, p_head = twins.parameters(model.encoder), twins.parameters(model.head)
    for row, x in enumerate(embedded(model, tokens, valid)):
        wanted = twins.head(twins.disan(x, p, "elu", 5.0), p_head, "elu")
        np.testing.assert_allclose(logits[row].detach().numpy(), wanted, rtol=1e-9, atol=1e-10)


def sentence_vectors(
    model: SentencesClassifier, slots: list[tuple[Tensor, Tensor]]
) -> list[np.ndarray]:
    return [encode(model, t, v, v[:, None].expand(-1, 2, -1)) for t, v in slots]


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("highway", [True, False])
def test_entailment_head(activation: str, highway: bool) -> None:
    model = small.classifier(activation=activation, highway=highway)
    slots = [small.sentences(4, 2, 5), small.sentences(3, 6, 1, seed=1)]
    logits = model([t for t, _ in slots], [v for _, v in slots]).detach().numpy()
    premises, hypotheses = sentence_vectors(model, slots)
    p = twins.parameters(model.head)
    assert ("highway.gate.weight" in p) is highway
    for row, (s_p, s_h) in enumerate(zip(premises, hypotheses, strict=True)):
        features = np.concatenate([s_p, s_h, s_p - s_h, s_p * s_h])
        np.testing.assert_allclose(logits[row], twins.head(features, p, activation), rtol=1e-9)


def test_relatedness_head() -> None:
    model = small.classifier(small.SCORE)
    slots = [small.sentences(4, 2, 5), small.sentences(3, 6, 1, seed=1)]
    logits = model([t for t, _ in slots], [v for _, v in slots])
    first, second = sentence_vectors(model, slots)
    p = twins.parameters(model.head)
    assert not any(name.startswith("highway") for name in p)
    assert logits.shape == (3, 5)
    for row, (s_1, s_2) in enumerate(zip(first, second, strict=True)):
        features = np.concatenate([s_1 * s_2, np.abs(s_1 - s_2)])
        wanted = twins.head(features, p, "elu")
        np.testing.assert_allclose(logits[row].detach().numpy(), wanted, rtol=1e-9)
        chances = np.exp(wanted) / np.exp(wanted).sum()
        assert float(model.predict(logits)[row].detach()) == pytest.approx(
            sum(k * p_k for k, p_k in zip(range(1, 6), chances, strict=True))
        )
    swapped = model([t for t, _ in slots[::-1]], [v for _, v in slots[::-1]])
    torch.testing.assert_close(swapped, logits, rtol=1e-12, atol=1e-12)


def test_classes_are_scored_by_cross_entropy() -> None:
    model = small.classifier(sentences=1)
    logits = torch.tensor([[1.0, 2.0, -1.0], [0.0, 0.0, 0.5]])
    losses = model.losses(logits, torch.tensor([2, 0]))
    for row, label in enumerate([2, 0]):
        weights = np.exp(logits[row].numpy())
        assert float(losses[row]) == pytest.approx(
            -np.log(weights[label] / weights.sum()), rel=1e-6
        )
    assert model.predict(logits).tolist() == [1, 2]
