"""Slow numpy twin of block self-attention: one sentence at a time, block by block."""

from __future__ import annotations

import numpy as np
from twins import (
    Parameters,
    attention,
    before,
    dense,
    linear,
    part,
    sigmoid,
    source2token,
)


def masked_self_attention(h: np.ndarray, p: Parameters, c: float, forward: bool) -> np.ndarray:
    """s_j over the i before (or after) j; 0 where there is none."""
    n = len(h)
    allowed = np.array([[before(i, j, forward) for i in range(n)] for j in range(n)]).reshape(n, n)
    w1_xi = h @ p["dependent_score.weight"].T
    w2_xj_b = h @ p["head_score.weight"].T + p["score_bias"]
    return attention(w1_xi, w2_xj_b, h, allowed, c)


def mblosa(
    x: np.ndarray,
    p: Parameters,
    activation: str,
    c: float,
    r: int,
    forward: bool,
    *,
    local: bool = True,
    across: bool = True,
) -> np.ndarray:
    """u of one direction: intra-block, inter-block, fusion."""
    h = dense(x, part(p, "project."), activation)
    blocks = [h[start : start + r] for start in range(0, len(h), r)]
    s = [masked_self_attention(block, part(p, "within."), c, forward) for block in blocks]
    joined = [h]
    if local:
        joined.append(np.concatenate(s))
    if across:
        q = part(p, "between.")
        v = np.stack([source2token(s_l, part(q, "pool."), activation) for s_l in s])
        o = masked_self_attention(v, part(q, "attention."), c, forward)
        g = sigmoid(linear(o, part(q, "gate_context.")) + linear(v, part(q, "gate_block.")))
        e = g * o + (1 - g) * v
        joined.append(np.stack([e[i // r] for i in range(len(h))]))
    y = np.concatenate(joined, 1)
    fused = dense(y, part(p, "fusion."), activation)
    g = sigmoid(linear(y, part(p, "fusion_gate.")))
    return g * fused + (1 - g) * h


def biblosan(
    x: np.ndarray, p: Parameters, activation: str, c: float, r: int, **parts: bool
) -> np.ndarray:
    """[mBloSA_fw; mBloSA_bw], then source2token."""
    u = [
        mblosa(x, part(p, f"context.directions.{k}."), activation, c, r, forward, **parts)
        for k, forward in enumerate((True, False))
    ]
    return source2token(np.concatenate(u, 1), part(p, "pool."), activation)
