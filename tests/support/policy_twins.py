"""Slow numpy twins of the sequential policies: one sentence, one bit at a time."""

from __future__ import annotations

import numpy as np
from twins import Parameters, linear, part, sigma, sigmoid


def step(a: np.ndarray, h: np.ndarray, p: Parameters) -> np.ndarray:
    """The state after reading a = [x_i; z_i]; the number of gate matrices tells the cell."""
    v = linear(a, part(p, "cell_input."))
    u_h = linear(h, part(p, "cell_state."))
    if len(v) == len(h):
        return np.tanh(v + u_h)
    v, u_h = v.reshape(3, -1), u_h.reshape(3, -1)
    reset, update = sigmoid(v[0] + u_h[0]), sigmoid(v[1] + u_h[1])
    return update * h + (1 - update) * np.tanh(v[2] + reset * u_h[2])


def conditional(x: np.ndarray, z: np.ndarray, p: Parameters, activation: str) -> np.ndarray:
    """p_i = p(z_i = 1 | x, z_1 .. z_{i-1}) for each i."""
    h = np.zeros(p["cell_state.weight"].shape[1])
    chances = np.zeros(len(x))
    for i, x_i in enumerate(x):
        seen = np.concatenate([h, x_i])
        hidden = sigma(linear(seen, part(p, "hidden.")), activation)
        chances[i] = sigmoid(linear(hidden, part(p, "score.")))[0]
        h = step(np.append(x_i, z[i]), h, p)
    return chances


def probability(x: np.ndarray, z: np.ndarray, p: Parameters, activation: str) -> float:
    """p(z | x), the product of the chances of its bits."""
    chances = conditional(x, z, p, activation)
    return float(np.prod(np.where(z, chances, 1 - chances)))
