"""Chebyshev interpolation in x of h(x + v) = exp(c tanh((x + v) / c)), with the fewest nodes.

With Chebyshev nodes x_r over the range of x, h(x + v) = sum_r L_r(x) h(x_r + v) up to an error that
falls geometrically with the number of nodes R, whatever v is: h is analytic within pi c / 2 of the
real line. So a dependent with score x equals the R nodes with weights L_r(x), and the weights of
many dependents add up. A Fourier series of h needs more terms than there are nodes (33 and 29 for
1e-5 where x and v each span 15; 49 and 41 for 2e-6 where they span 20), two transcendental
functions per term where a node takes one, and a bound on v.

Legend: R nodes, in [-1, 1] until scaled by half the width of the range. All errors are relative to
h(x + v), maxima over x and v.
Source: Trefethen, Approximation Theory and Approximation Practice (2013), chapters 4 and 8.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

MOST_NODES = 96
"""If more were needed, exact pairs would be cheaper for all but the longest texts."""

_SAFETY = 1.25
"""Errors are measured on a grid, which misses the exact maximum."""

_STEP = 1.06
"""Widths are rounded up to a power of this, so that few have to be measured."""

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Errors:
    """Errors of an interpolation, relative to h(x + v).

    value       of h
    derivative  of its derivatives by x and by v, whichever is larger
    lebesgue    largest sum_r |L_r(x)|, by which rounding errors of h(x_r + v) are multiplied
    """

    value: float
    derivative: float
    lebesgue: float


def nodes(count: int) -> Array:
    """Chebyshev points of the first kind in (-1, 1), falling, [R].

    >>> nodes(2).round(4).tolist()
    [0.7071, -0.7071]
    """
    return np.cos((np.arange(count) + 0.5) * np.pi / count)


def coefficients(count: int) -> Array:
    """Matrix [R, R] of L_r(x) = sum_k matrix[k, r] T_k(x), the Lagrange polynomials of the nodes.

    >>> coefficients(2).round(4).tolist()
    [[0.5, 0.5], [0.7071, -0.7071]]
    """
    angles = (np.arange(count) + 0.5) * np.pi / count
    matrix: Array = 2 / count * np.cos(np.arange(count)[:, None] * angles)
    matrix[0] /= 2
    return matrix


def growth(scale: float, width: float) -> float:
    """Largest over smallest h(x + v) of scores x within `width`, at the worst v.

    exp(2 c tanh(width / (2 c))), reached where the range is centred on -v.
    """
    return math.exp(2 * scale * math.tanh(width / (2 * scale)))


@lru_cache(maxsize=4096)
def errors(scale: float, width: float, count: int) -> Errors:
    """Errors of `count` nodes over a range of `width`, measured on a grid of x and v.

    Args:
        scale: c. width: of the range of x, in units of the score. count: R, at least 1.
    """
    matrix, order = coefficients(count), np.arange(count)
    angles = np.linspace(0, np.pi, 6 * count + 1)[:, None]
    basis = np.cos(order * angles)  # T_k(x), [X, R]
    sines = np.sin(angles)
    inner = np.abs(sines) > 1e-9
    # T_k'(cos t) = k sin(k t) / sin(t), which is (+-1)^(k + 1) k^2 at the ends.
    slopes = np.where(
        inner,
        order * np.sin(order * angles) / np.where(inner, sines, 1.0),
        order**2 * np.sign(np.cos(angles)) ** (order + 1),
    )
    shifts = np.linspace(0, width / 2 + 4 * scale, 4 * count + 40)
    shifts = np.concatenate([-shifts[:0:-1], shifts])  # v
    half = width / 2
    at_nodes, flat_nodes = _h(half * nodes(count)[:, None] + shifts, scale)  # [R, V]
    exact, flat = _h(half * np.cos(angles) + shifts, scale)  # [X, V]
    series = matrix @ at_nodes
    value = np.abs(basis @ series / exact - 1).max()
    by_x = np.abs((slopes @ series) / (half * exact) - flat).max()
    by_v = np.abs(basis @ (matrix @ (at_nodes * flat_nodes)) / exact - flat).max()
    return Errors(
        value=_SAFETY * float(value),
        derivative=_SAFETY * float(max(by_x, by_v)),
        lebesgue=float(np.abs(basis @ matrix).sum(1).max()),
    )


def rounded_width(scale: float, width: float) -> float:
    """`width` rounded up to one of few, so that errors are measured for few; at least c / 100.

    >>> rounded_width(5.0, 0.0), round(rounded_width(5.0, 7.9), 3)
    (0.05, 7.954)
    """
    least = 1e-2 * scale
    return least * _STEP ** math.ceil(math.log(max(width / least, 1.0), _STEP))


@lru_cache(maxsize=1024)
def fewest_nodes(scale: float, width: float, error: float) -> int | None:
    """Fewest nodes for `error` / 2 in h and `error` in its derivatives; None if too many.

    Args:
        scale: c > 0. width: of the range of x, above 0. error: relative, rounding aside.
    """
    if not _suffices(scale, width, MOST_NODES, error):
        return None
    few, many = 1, MOST_NODES  # bisection: `many` suffices, what is below `few` does not
    while few < many:
        middle = (few + many) // 2
        if _suffices(scale, width, middle, error):
            many = middle
        else:
            few = middle + 1
    return many


def _suffices(scale: float, width: float, count: int, error: float) -> bool:
    found = errors(scale, width, count)
    return found.value <= error / 2 and found.derivative <= error


def _h(scores: Array, scale: float) -> tuple[Array, Array]:
    """h exp(-c), in [exp(-2 c), 1], and the derivative of log h."""
    level = np.tanh(scores / scale)
    return np.exp(scale * level - scale), 1 - level**2
