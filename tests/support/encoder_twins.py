"""Slow numpy twins of the context encoders, one sentence at a time, in the notation of the papers.

x [n, e] embeddings; h [n, d] or u [n, 2d] what each token becomes; t = place in the sentence.
`p` holds a module's parameters under their names, float64.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from twins import Parameters, linear, part, sigma, sigmoid

Step = Callable[[np.ndarray, list[np.ndarray]], list[np.ndarray]]
"""One token and the state before it to the state after it; the first of the state is h."""


def run(step: Step, x: np.ndarray, sizes: Sequence[int], forward: bool) -> np.ndarray:
    """h of each token, from the first to the last or from the last to the first."""
    state, h = [np.zeros(size) for size in sizes], np.zeros((len(x), sizes[0]))
    for t in range(len(x)) if forward else reversed(range(len(x))):
        state = step(x[t], state)
        h[t] = state[0]
    return h


def _torch_cell(p: Parameters) -> tuple[np.ndarray, ...]:
    names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    return tuple(p[f"{name}_l0"] for name in names)


def lstm_step(p: Parameters) -> Step:
    """c = f * c + i * g, h = o * tanh(c)."""
    w, u, b, b_h = _torch_cell(p)

    def step(x_t: np.ndarray, state: list[np.ndarray]) -> list[np.ndarray]:
        h, c = state
        i, f, g, o = np.split(w @ x_t + b + u @ h + b_h, 4)
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        return [sigmoid(o) * np.tanh(c), c]

    return step


def gru_step(p: Parameters) -> Step:
    """h = (1 - z) * tanh(W x + b + r * (U h + b_h)) + z * h."""
    w, u, b, b_h = _torch_cell(p)

    def step(x_t: np.ndarray, state: list[np.ndarray]) -> list[np.ndarray]:
        (h,) = state
        (x_r, x_z, x_n), (h_r, h_z, h_n) = np.split(w @ x_t + b, 3), np.split(u @ h + b_h, 3)
        r, z = sigmoid(x_r + h_r), sigmoid(x_z + h_z)
        return [(1 - z) * np.tanh(x_n + r * h_n) + z * h]

    return step


def sru_step(p: Parameters, forward: bool) -> Step:
    """c = f * c + (1 - f) * W x, h = r * tanh(c) + (1 - r) * x."""
    d = p["forget_bias"].size // 2
    mine = slice(0, d) if forward else slice(d, 2 * d)
    w, w_f, w_r = (block[mine] for block in np.split(p["project.weight"], 3))
    b_f, b_r = p["forget_bias"][mine], p["reset_bias"][mine]

    def step(x_t: np.ndarray, state: list[np.ndarray]) -> list[np.ndarray]:
        _, c = state
        f, r = sigmoid(w_f @ x_t + b_f), sigmoid(w_r @ x_t + b_r)
        c = f * c + (1 - f) * (w @ x_t)
        shortcut = p["carry.weight"][mine] @ x_t if "carry.weight" in p else x_t
        return [r * np.tanh(c) + (1 - r) * shortcut, c]

    return step


def both_ways(x: np.ndarray, steps: tuple[Step, Step], sizes: Sequence[int]) -> np.ndarray:
    """u = [h of the forward run; h of the backward run]."""
    return np.concatenate([run(steps[0], x, sizes, True), run(steps[1], x, sizes, False)], 1)


def bilstm(x: np.ndarray, p: Parameters) -> np.ndarray:
    steps = [lstm_step(part(p, f"recurrence.{way}.")) for way in ("ahead", "back")]
    d = p["recurrence.ahead.weight_hh_l0"].shape[1]
    return both_ways(x, (steps[0], steps[1]), (d, d))


def bigru(x: np.ndarray, p: Parameters) -> np.ndarray:
    steps = [gru_step(part(p, f"recurrence.{way}.")) for way in ("ahead", "back")]
    d = p["recurrence.ahead.weight_hh_l0"].shape[1]
    return both_ways(x, (steps[0], steps[1]), (d,))


def bisru(x: np.ndarray, p: Parameters) -> np.ndarray:
    d = p["forget_bias"].size // 2
    return both_ways(x, (sru_step(p, True), sru_step(p, False)), (d, d))


def convolution(x: np.ndarray, p: Parameters, start: int) -> np.ndarray:
    """W [x_start; ...; x_{start+w-1}] + b with zeros where there is no token."""
    total = p["bias"].copy()
    for offset in range(p["weight"].shape[2]):
        if 0 <= start + offset < len(x):
            total += p["weight"][:, :, offset] @ x[start + offset]
    return total


def windows(x: np.ndarray, convolutions: Sequence[Parameters], activation: str) -> np.ndarray:
    """Largest sigma(W [x_i; ...] + b) over all i with a token in it; 0 of no tokens."""
    features = []
    for p in convolutions:
        first = 1 - p["weight"].shape[2]
        responses = [sigma(convolution(x, p, i), activation) for i in range(first, len(x))]
        features.append(np.max(responses, axis=0) if len(x) else np.zeros(p["bias"].size))
    return np.concatenate(features)


def gated_convolutions(
    x: np.ndarray, p: Parameters, convolutions: Sequence[Parameters]
) -> np.ndarray:
    """x + a * sigmoid(b), [a; b] = W [x_{i-before}; ...; x_{i+behind}] + b, layer upon layer."""
    if "entry.weight" in p:
        x = linear(x, {"weight": p["entry.weight"], "bias": p["entry.bias"]})
    for layer in convolutions:
        before = (layer["weight"].shape[2] - 1) // 2
        d = x.shape[1]
        new = x.copy()
        for i in range(len(x)):
            response = convolution(x, layer, i - before)
            new[i] += response[:d] * sigmoid(response[d:])
        x = new
    return x


def positions(n: int, e: int) -> np.ndarray:
    """PE(t, k) = sin(t / 10000^(k / e)) for even k, cos(t / 10000^((k - 1) / e)) for odd k."""
    table = np.zeros((n, e))
    for t in range(n):
        for k in range(e):
            angle = t / 10000.0 ** ((k - k % 2) / e)
            table[t, k] = np.cos(angle) if k % 2 else np.sin(angle)
    return table


def multi_head(x: np.ndarray, p: Parameters, heads: int, factors: np.ndarray) -> np.ndarray:
    """[sum_i factor P_ji v_i] over the heads, P = softmax_i(q_j k_i / sqrt(d)).

    factors [n, H, n] multiply the weights: dropout.
    """
    placed = x + positions(*x.shape) / np.sqrt(x.shape[1])
    q, k, v = (placed @ block.T for block in np.split(p["project.weight"], 3))
    d = q.shape[1] // heads
    out = np.zeros_like(q)
    for head in range(heads):
        mine = slice(head * d, (head + 1) * d)
        for j in range(len(x)):
            weights = np.array([np.exp(q[j, mine] @ k_i / np.sqrt(d)) for k_i in k[:, mine]])
            for i in range(len(x)):
                share = factors[j, head, i] * weights[i] / weights.sum()
                out[j, mine] += share * v[i, mine]
    return out
