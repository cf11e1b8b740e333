"""Attributions, on models whose words count for what is known by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from rss_rl.ops.attribution import (
    gradient_times_input,
    integrated_gradients,
    lime,
    occlusion,
    random_drops,
    weighted_ridge,
)

WORDS = torch.tensor([2.0, -1.0, 0.5, 0.0, 3.0], dtype=torch.float64)
"""What each word adds to the value of a linear model."""


def linear(left: Tensor) -> Tensor:
    return left.double() @ WORDS + 7


def both(left: Tensor) -> Tensor:
    """4 where words 0 and 2 both stand, and 1 more for word 1."""
    return 4.0 * (left[:, 0] & left[:, 2]) + 1.0 * left[:, 1]


def uniforms(variants: int, words: int, seed: int = 0) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).random((variants, words + 1)))


def test_occlusion_is_what_the_value_loses() -> None:
    assert occlusion(linear, 5).tolist() == pytest.approx(WORDS.tolist())
    assert occlusion(both, 4).tolist() == [4.0, 1.0, 4.0, 0.0]
    assert occlusion(both, 4).dtype == torch.float64


def test_occlusion_of_windows_is_the_mean_loss_of_those_around_a_word() -> None:
    # Windows of two words lose 1, -.5, .5 and 3; a word at an end is in one of them.
    assert occlusion(linear, 5, 2).tolist() == pytest.approx([1, 0.25, 0, 1.75, 3])
    assert occlusion(linear, 5, 9).tolist() == pytest.approx([4.5] * 5)
    assert occlusion(linear, 0).tolist() == []
    with pytest.raises(ValueError, match="windows of 0"):
        occlusion(linear, 5, 0)


def squared(vectors: Tensor) -> Tensor:
    """(sum of a . x over the words)^2 with a = (1, 2)."""
    return (vectors @ torch.tensor([1.0, 2.0])).sum() ** 2


def test_gradients_of_a_square() -> None:
    vectors = torch.tensor([[1.0, 0.5], [0.0, -1.0], [3.0, 0.0]])
    shares = torch.tensor([2.0, -2.0, 3.0])  # a . x, which sum up to 3
    assert gradient_times_input(squared, vectors).tolist() == (2 * 3 * shares).tolist()
    # The gradient grows linearly on the way from zero: the midpoint rule makes no error.
    found = integrated_gradients(squared, vectors, steps=4)
    assert found.tolist() == pytest.approx((3 * shares).tolist())
    assert found.sum().item() == pytest.approx(squared(vectors).item())
    assert not vectors.requires_grad
    with torch.no_grad():
        assert gradient_times_input(squared, vectors).tolist() == (2 * 3 * shares).tolist()
    with pytest.raises(ValueError, match="a vector for each word"):
        gradient_times_input(squared, vectors[None])
    with pytest.raises(ValueError, match="0 points"):
        integrated_gradients(squared, vectors, steps=0)


def test_integrated_gradients_add_up_where_the_value_bends() -> None:
    vectors = torch.tensor([[0.4, -0.3], [1.1, 0.2]], dtype=torch.float64)

    def bent(given: Tensor) -> Tensor:
        return torch.sigmoid(3 * given.sum()) + given[0, 0] ** 3

    exact = (bent(vectors) - bent(torch.zeros_like(vectors))).item()
    assert integrated_gradients(bent, vectors).sum().item() == pytest.approx(exact, abs=1e-3)
    one = integrated_gradients(bent, vectors, steps=1).sum().item()
    assert one != pytest.approx(exact, abs=1e-2)


def test_variants_leave_any_number_of_words_alike_often() -> None:
    left = random_drops(uniforms(20_001, 4))
    assert left[0].all()
    counts = np.bincount(left[1:].sum(1).numpy(), minlength=5) / 20_000
    assert counts == pytest.approx([0.2] * 5, abs=0.015)
    assert left[1:].double().mean(0).numpy() == pytest.approx([0.5] * 4, abs=0.015)
    with pytest.raises(ValueError, match="uniforms"):
        random_drops(torch.zeros(0, 3))


def test_ridge_is_that_of_scikit_learn() -> None:
    features = torch.tensor([[1, 1, 1], [0, 1, 1], [1, 0, 1], [0, 0, 1], [1, 1, 0]])
    values = torch.tensor([3.0, 1.0, 2.5, -1.0, 2.0])
    weights = torch.tensor([1.0, 0.8, 0.7, 0.3, 0.9], dtype=torch.float64)
    # Ridge(alpha=0.5).fit(features, values, sample_weight=weights).coef_, scikit-learn 1.9.1
    known = [1.3190679256777338, 0.4297898263783124, 0.31526043253122144]
    assert weighted_ridge(features, values, weights, 0.5).tolist() == pytest.approx(known)
    with pytest.raises(ValueError, match="shapes"):
        weighted_ridge(features, values[1:], weights, 0.5)
    with pytest.raises(ValueError, match="a penalty of 0"):
        weighted_ridge(features, values, weights, 0)


def test_lime_finds_the_coefficients_of_a_linear_model() -> None:
    given = uniforms(200, 5)
    exact = lime(linear, given, penalty=1e-9)
    assert exact.tolist() == pytest.approx(WORDS.tolist(), abs=1e-6)
    assert lime(linear, given).tolist() != pytest.approx(WORDS.tolist(), abs=1e-2)
    # A constant says nothing of any word.
    assert lime(lambda left: torch.ones(len(left)), given).abs().max() < 1e-9


def test_lime_weighs_variants_by_their_distance() -> None:
    given, kernel, penalty = uniforms(60, 4), 0.3, 0.7
    left = random_drops(given)
    distances = [1 - np.sqrt(sum(row) / 4) for row in left.tolist()]
    weights = [np.sqrt(np.exp(-(d**2) / kernel**2)) for d in distances]
    # The ridge as least squares: a row for each variant, and one for each coefficient's penalty.
    rows = [np.sqrt(w) * np.array([1, *row]) for w, row in zip(weights, left.tolist(), strict=True)]
    rows += [np.sqrt(penalty) * np.eye(5)[place] for place in range(1, 5)]
    values = both(left).tolist()
    targets = [np.sqrt(w) * value for w, value in zip(weights, values, strict=True)] + [0] * 4
    solution = np.linalg.lstsq(np.array(rows), np.array(targets))[0]
    found = lime(both, given, kernel=kernel, penalty=penalty)
    assert found.tolist() == pytest.approx(solution[1:].tolist(), abs=1e-9)


def test_lime_looks_close_to_the_whole_text() -> None:
    # Of two words that count together, each counts the more the seldomer the other is left out.
    given = uniforms(4000, 4)
    near, far = (lime(both, given, kernel=kernel)[0].item() for kernel in (0.05, 1.0))
    assert 2 < far < near < 4


def test_a_text_without_a_word_has_no_scores() -> None:
    assert lime(lambda left: torch.ones(len(left)), uniforms(9, 0)).tolist() == []
