"""Slow numpy twins of the formulas, one sentence at a time, in the notation of the papers.

x [n, e] embeddings, h [n, d], s [n, d], u [n, d]; i = dependent, j = head; z^h, z^d in {0, 1}^n.
`p` holds a module's parameters under their names, float64.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import numpy as np
from torch import nn

Parameters = dict[str, np.ndarray]


def parameters(module: nn.Module) -> Parameters:
    """The module's parameters as float64 arrays."""
    return {
        name: value.detach().numpy().astype(np.float64) for name, value in module.named_parameters()
    }


def part(p: Parameters, prefix: str) -> Parameters:
    """The parameters under `prefix`, without it."""
    return {name[len(prefix) :]: value for name, value in p.items() if name.startswith(prefix)}


def sigmoid(a: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-a))


def sigma(a: np.ndarray, name: str) -> np.ndarray:
    """ReLU or ELU."""
    return np.maximum(a, 0) if name == "relu" else np.where(a > 0, a, np.exp(np.minimum(a, 0)) - 1)


def linear(a: np.ndarray, p: Parameters) -> np.ndarray:
    return a @ p["weight"].T + p.get("bias", 0.0)


def dense(a: np.ndarray, p: Parameters, activation: str) -> np.ndarray:
    """Dense(a) = sigma(W a + b)."""
    return sigma(linear(a, part(p, "linear.")), activation)


def mixture(logits: list[np.ndarray], values: list[np.ndarray], size: int) -> np.ndarray:
    """sum_i P_i * values_i with P the softmax of the logits, for each feature; 0 of nothing."""
    total = np.zeros(size)
    for k in range(size):
        peak = max((logit[k] for logit in logits), default=0.0)
        weights = [np.exp(logit[k] - peak) for logit in logits]
        for weight, value in zip(weights, values, strict=True):
            total[k] += weight / sum(weights) * value[k]
    return total


def attention(
    w1_xi: np.ndarray, w2_xj_b: np.ndarray, h: np.ndarray, allowed: np.ndarray, c: float
) -> np.ndarray:
    """s_j = sum_i P^j_i * h_i, f(x_i, x_j) = c tanh((W1 x_i + W2 x_j + b) / c) + M_ij.

    allowed [j, i] is True where M_ij = 0.
    """
    s = np.zeros_like(w2_xj_b)
    for j in range(len(w2_xj_b)):
        shown = [i for i in range(len(h)) if allowed[j, i]]
        logits = [c * np.tanh((w1_xi[i] + w2_xj_b[j]) / c) for i in shown]
        s[j] = mixture(logits, [h[i] for i in shown], h.shape[1])
    return s


def source2token(x: np.ndarray, p: Parameters, activation: str) -> np.ndarray:
    """e = sum_i P_i * x_i with f(x_i) = W2 sigma(W1 x_i + b1) + b2; 0 of no tokens."""
    f = linear(dense(x, part(p, "hidden."), activation), part(p, "score."))
    return mixture(list(f), list(x), p["score.bias"].size)


def before(i: int, j: int, forward: bool) -> bool:
    """The position mask: may head j look at token i?"""
    return i < j if forward else i > j


def fusion_gate(h: np.ndarray, s: np.ndarray, p: Parameters) -> np.ndarray:
    """u = F * h + (1 - F) * s, F = sigmoid(W_f1 h + b_1 + W_f2 s + b_2 + b_f)."""
    gate = sigmoid(
        linear(h, part(p, "gate_input.")) + linear(s, part(p, "gate_context.")) + p["gate_bias"]
    )
    return gate * h + (1 - gate) * s


def _scores(h: np.ndarray, p: Parameters) -> tuple[np.ndarray, np.ndarray]:
    w1_xi = h @ p["dependent_score.weight"].T
    w2_xj_b = h @ p["head_score.weight"].T + p["score_bias"]
    return w1_xi, w2_xj_b


def disa(x: np.ndarray, p: Parameters, activation: str, c: float, forward: bool) -> np.ndarray:
    """One direction of DiSA: every token looks at all tokens before (or after) it."""
    n = len(x)
    h = dense(x, part(p, "project."), activation)
    allowed = np.array([[before(i, j, forward) for i in range(n)] for j in range(n)]).reshape(n, n)
    return fusion_gate(h, attention(*_scores(h, p), h, allowed, c), p)


def disan(x: np.ndarray, p: Parameters, activation: str, c: float) -> np.ndarray:
    """DiSAN: [u_fw; u_bw], then source2token. No selection anywhere."""
    u = [
        disa(x, part(p, f"resa.directions.{k}."), activation, c, forward)
        for k, forward in enumerate((True, False))
    ]
    return source2token(np.concatenate(u, 1), part(p, "pool."), activation)


def resa(
    x: np.ndarray,
    zh: np.ndarray,
    zd: np.ndarray,
    p: Parameters,
    activation: str,
    c: float,
    forward: bool,
) -> np.ndarray:
    """One direction of ReSA over a full n x n mask M^rss.

    Unselected heads get the mean of the tokens that their position mask allows.
    """
    n = len(x)
    h = dense(x, part(p, "project."), activation)
    allowed = np.zeros((n, n), bool)
    for j in range(n):
        for i in range(n):
            allowed[j, i] = zd[i] and zh[j] and i != j and before(i, j, forward)
    s = attention(*_scores(h, p), h, allowed, c)
    for j in range(n):
        mean_over = [h[i] for i in range(n) if before(i, j, forward)]
        if not zh[j]:
            s[j] = np.mean(mean_over, axis=0) if mean_over else 0.0
    return fusion_gate(h, s, p)


def resan(
    x: np.ndarray,
    zh: np.ndarray,
    zd: np.ndarray,
    p: Parameters,
    activation: str,
    c: float,
    *,
    keep_unselected: bool,
) -> np.ndarray:
    """ReSA in both directions, then source2token over all tokens or over the selected heads."""
    u = np.concatenate(
        [
            resa(x, zh, zd, part(p, f"resa.directions.{k}."), activation, c, forward)
            for k, forward in enumerate((True, False))
        ],
        1,
    )
    return source2token(u if keep_unselected else u[zh], part(p, "pool."), activation)


def head(features: np.ndarray, p: Parameters, activation: str) -> np.ndarray:
    """Dense, highway g * Dense(v) + (1 - g) * v where there is one, linear."""
    v = dense(features, part(p, "dense."), activation)
    if "highway.gate.weight" in p:
        g = sigmoid(linear(v, part(p, "highway.gate.")))
        v = g * dense(v, part(p, "highway.transform."), activation) + (1 - g) * v
    return linear(v, part(p, "output."))


def rss(x: np.ndarray, p: Parameters, activation: str) -> np.ndarray:
    """p(z_i = 1 | x) = sigmoid(w^T sigma(W_R [x_i; pool; x_i * pool] + b_R) + b)."""
    pool = x.mean(0)
    f = np.stack([np.concatenate([x_i, pool, x_i * pool]) for x_i in x])
    return sigmoid(linear(sigma(linear(f, part(p, "hidden.")), activation), part(p, "score.")))[
        :, 0
    ]


def importance_loss(
    form: str,
    log_p: Sequence[np.ndarray],
    behaviour: Sequence[np.ndarray],
    a: np.ndarray,
    limit: float,
) -> tuple[np.ndarray, list[np.ndarray]]:
    """Loss of each selection [k, b, s] and its gradient in log_p, s x [k, b, r, n], weights fixed.

    truncated-sum    -rho A_s sum_i log pi_si, rho = min(rho_max, prod_s prod_i pi_si / mu_si)
    clipped-token    -sum_i min(r_si A_s, clip(r_si, 1 - eps, 1 + eps) A_s), r_si = pi_si / mu_si
    """
    loss, gradient = np.zeros(a.shape), [np.zeros(part.shape) for part in log_p]
    for k, b, s in np.ndindex(*a.shape):
        rho = 1.0
        for now, before in zip(log_p, behaviour, strict=True):
            rho *= np.exp(now[k, b].sum() - before[k, b].sum())
        rho = min(limit, rho)
        for place in np.ndindex(*log_p[s].shape[2:]):
            here = (k, b, *place)
            log_pi, log_mu, paid = log_p[s][here], behaviour[s][here], a[k, b, s]
            ratio = np.exp(log_pi - log_mu)
            if form == "clipped-token":
                if log_pi == 0 and log_mu == 0:
                    continue  # nothing was decided here
                plain = ratio * paid
                clipped = min(max(ratio, 1 - limit), 1 + limit) * paid
                loss[k, b, s] -= min(plain, clipped)
                gradient[s][here] = -plain if plain <= clipped else 0.0
            else:
                loss[k, b, s] -= rho * paid * log_pi
                gradient[s][here] = -rho * paid
    return loss, gradient


def expected_gradient(
    weigh: Callable[[np.ndarray], np.ndarray],
    behaviour: Sequence[np.ndarray],
    target: Sequence[np.ndarray],
    reward: Callable[[Sequence[np.ndarray]], np.ndarray],
) -> list[np.ndarray]:
    """sum_z mu(z) R_s(z) w_si(r) (z_si - pi_si), in the logits of the bits of each slot.

    Args:
        weigh: the weights of all bits [sum n_s] by their ratios r = pi(z) / mu(z).
        behaviour, target: probabilities mu and pi of independent bits, s x [n_s].
        reward: [s] of the selections of the slots, s x [n_s].
    """
    mu, pi = np.concatenate(behaviour), np.concatenate(target)
    cuts = np.cumsum([len(part) for part in target])[:-1]
    total = [np.zeros(len(part)) for part in target]
    for bits in itertools.product((0.0, 1.0), repeat=len(mu)):
        z = np.array(bits)
        chance, now = np.where(z == 1, mu, 1 - mu), np.where(z == 1, pi, 1 - pi)
        score = np.split(weigh(now / chance) * (z - pi), cuts)
        for s, paid in enumerate(reward(np.split(z, cuts))):
            total[s] += chance.prod() * paid * score[s]
    return total
