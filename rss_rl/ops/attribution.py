"""Attribution: how much each word of a text contributes to a model's output.

A value is one number that a model computes for a text, such as the log-odds of a class, passed as
a function of the kept words or of the word vectors. The result is a score for each word: the
higher, the more the word raises the value.

Legend: n words of a text, K variants of it, E embedding size.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

OfWords = Callable[[Tensor], Tensor]
"""Maps bool [K, n], the words kept in each variant of a text, to the values [K]."""
OfVectors = Callable[[Tensor], Tensor]
"""Maps word vectors [n, E] to the value, a differentiable scalar."""


def occlusion(value: OfWords, words: int, width: int = 1) -> Tensor:
    """Drop in the value when a word is removed: float64 [n].

    Windows of `width` adjacent words are removed in turn; a word's score is the mean drop over the
    windows that contain it. (Zeiler and Fergus, Visualizing and understanding convolutional
    networks, ECCV 2014.)

    Args:
        words: n. width: at least 1; a shorter text is one window.
    """
    if words < 0 or width < 1:
        raise ValueError(f"{words} words and windows of {width}")
    if not words:
        return torch.zeros(0, dtype=torch.float64)
    starts = torch.arange(max(1, words - width + 1))[:, None]
    positions = torch.arange(words)
    hidden = (positions >= starts) & (positions < starts + width)  # [windows, n]
    whole = value(torch.ones(1, words, dtype=torch.bool)).double()
    losses = whole - value(~hidden).double()  # [windows]
    return losses @ hidden.double() / hidden.sum(0)


def gradient_times_input(value: OfVectors, vectors: Tensor) -> Tensor:
    """sum_e x_e dF(x)/dx_e of each word's vector x: float64 [n].

    (Shrikumar et al., Not just a black box, arXiv:1605.01713, 2016.)

    Args:
        vectors: [n, E].
    """
    return (_gradient(value, vectors).double() * vectors.double()).sum(-1)


def integrated_gradients(value: OfVectors, vectors: Tensor, steps: int = 32) -> Tensor:
    """sum_e x_e * integral from 0 to 1 of dF(t x)/dx_e dt of each word's vector x: float64 [n].

    The scores sum to F(x) - F(0), up to the error of the midpoint rule. (Sundararajan et al.,
    Axiomatic attribution for deep networks, ICML 2017; the baseline is zero vectors.)

    Args:
        vectors: [n, E]. steps: points of the integral.
    """
    if steps < 1:
        raise ValueError(f"an integral of {steps} points")
    total = torch.zeros_like(vectors, dtype=torch.float64)
    for step in range(steps):
        total += _gradient(value, (step + 0.5) / steps * vectors).double()
    return (total / steps * vectors.double()).sum(-1)


def _gradient(value: OfVectors, vectors: Tensor) -> Tensor:
    """[n, E]."""
    if vectors.dim() != 2:
        raise ValueError(f"a vector for each word, got {tuple(vectors.shape)}")
    with torch.enable_grad():
        leaf = vectors.detach().requires_grad_()
        (gradient,) = torch.autograd.grad(value(leaf), leaf)
    return gradient


def random_drops(uniforms: Tensor) -> Tensor:
    """Random subsets of the words: bool [K, n], True = kept; the first variant keeps all.

    The share removed is itself uniform, so the number of kept words is uniform over 0 to n.

    Args:
        uniforms: [K, n + 1] in (0, 1): for each variant the share removed, and a number per word.
    """
    if uniforms.dim() != 2 or not uniforms.numel():
        raise ValueError(f"uniforms {tuple(uniforms.shape)} are not [K, n + 1]")
    left = uniforms[:, 1:] >= uniforms[:, :1]
    left[0] = True
    return left


def lime(value: OfWords, uniforms: Tensor, *, kernel: float = 0.25, penalty: float = 1.0) -> Tensor:
    """Coefficients of a linear model of the value around the whole text: float64 [n].

    z_k are the variants of `random_drops`, d_k = 1 - sqrt(mean of z_k) their cosine distance from
    the whole text, and the weight of a variant is sqrt(exp(-(d_k / kernel)^2)); then
    `weighted_ridge`. (Ribeiro et al., "Why should I trust you?", KDD 2016: its text explainer, all
    words being features.)

    Args:
        uniforms: [K, n + 1], see `random_drops`. kernel: width. penalty: of squared coefficients.
    """
    left = random_drops(uniforms)
    features = left.double()
    distance = 1 - features.mean(1).sqrt() if left.shape[1] else torch.zeros(len(left))
    weights = torch.exp(-((distance / kernel) ** 2)).sqrt().double()
    return weighted_ridge(features, value(left).double(), weights, penalty)


def weighted_ridge(features: Tensor, values: Tensor, weights: Tensor, penalty: float) -> Tensor:
    """The w [n] that minimises sum_k weights_k (values_k - b - w features_k)^2 + penalty |w|^2.

    The constant b is free. Solved in float64.

    Args:
        features: [K, n]. values, weights: [K]; weights positive. penalty: positive.
    """
    if features.dim() != 2 or not values.shape == weights.shape == features.shape[:1]:
        shapes = [tuple(part.shape) for part in (features, values, weights)]
        raise ValueError(f"features, values and weights of shapes {shapes}")
    if penalty <= 0:
        raise ValueError(f"a penalty of {penalty}")
    features, values, weights = (part.double() for part in (features, values, weights))
    share = weights / weights.sum()
    centred = features - share @ features  # [K, n]; orthogonal to b under the weights
    weighted = centred * weights[:, None]
    moments = weighted.T @ centred + penalty * torch.eye(features.shape[1], dtype=torch.float64)
    solution: Tensor = torch.linalg.solve(moments, weighted.T @ values)
    return solution
