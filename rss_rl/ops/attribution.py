"""How much each word of a text counts for what a trained model says of it.

A value is one number that a model gives a text, such as the log-odds of a class. Functions take it
as a function of which words are left, or of the words' vectors, and return a score for each word:
the higher, the more the word speaks for the value.

Legend: n words of a text, K variants of it, E embedding size.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

OfWords = Callable[[Tensor], Tensor]
"""The values [K] of a text of which bool [K, n] words are left."""
OfVectors = Callable[[Tensor], Tensor]
"""The value, a scalar, of a text with word vectors [n, E]; differentiable."""


def occlusion(value: OfWords, words: int, width: int = 1) -> Tensor:
    """What the value loses without a word: float64 [n].

    Windows of `width` words next to each other are left out in turn; a word has the mean loss of
    the windows that it is in. (Zeiler and Fergus, Visualizing and understanding convolutional
    networks, ECCV 2014.)

    Args:
        words: n. width: at least 1; a text that is shorter is one window.
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

    The words' scores sum up to F(x) - F(0), but for the error of the midpoint rule. (Sundararajan
    et al., Axiomatic attribution for deep networks, ICML 2017; the baseline is vectors of zeros.)

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
    """Which words are left: bool [K, n]; of the first variant all.

    A variant leaves out a share of the words that is itself uniform, so that the number left is
    equally likely to be any of 0 to n.

    Args:
        uniforms: [K, n + 1] in (0, 1): of each variant the share left out, and a number a word.
    """
    if uniforms.dim() != 2 or not uniforms.numel():
        raise ValueError(f"uniforms {tuple(uniforms.shape)} are no [K, n + 1]")
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
