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


def lstm(x: np.ndarray, p: Parameters, suffix: str) -> np.ndarray:
    """h of each token: i, f, g, o = gates of W x + b + U h + b'; c' = f c + i g; h = o tanh c'."""
    w, u = p[f"weight_ih_l0{suffix}"], p[f"weight_hh_l0{suffix}"]
    b = p[f"bias_ih_l0{suffix}"] + p[f"bias_hh_l0{suffix}"]
    h = c = np.zeros(u.shape[1])
    states = []
    for x_i in x:
        i, f, g, o = (w @ x_i + u @ h + b).reshape(4, -1)
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        h = sigmoid(o) * np.tanh(c)
        states.append(h)
    return np.array(states)


def gru(x: np.ndarray, p: Parameters, suffix: str) -> np.ndarray:
    """h of each token: r, z, n = gates; n = tanh(W x + b + r (U h + b')); h' = z h + (1 - z) n."""
    w, u = p[f"weight_ih_l0{suffix}"], p[f"weight_hh_l0{suffix}"]
    h = np.zeros(u.shape[1])
    states = []
    for x_i in x:
        read = (w @ x_i + p[f"bias_ih_l0{suffix}"]).reshape(3, -1)
        kept = (u @ h + p[f"bias_hh_l0{suffix}"]).reshape(3, -1)
        reset, update = sigmoid(read[0] + kept[0]), sigmoid(read[1] + kept[1])
        h = update * h + (1 - update) * np.tanh(read[2] + reset * kept[2])
        states.append(h)
    return np.array(states)


def both_directions(kind: str, x: np.ndarray, p: Parameters) -> np.ndarray:
    """[->h_i; <-h_i] of each token."""
    run = {"lstm": lstm, "gru": gru}[kind]
    return np.concatenate([run(x, p, ""), run(x[::-1], p, "_reverse")[::-1]], 1)
