"""The reward of a selection: the reward model's score minus the cost of the kept tokens.

    R_s = score - sum_t cost_t,s          reward of sentence s
    R   = score - sum_t sum_s cost_t,s    reward of the example, see `Rewards`

over cost terms t; for a sentence of n real tokens with h heads and d dependents

    sparsity_cost  = lambda * (h + d) / n            penalty "sum", the paper
                   = lambda * (h / n) * (d / n)      penalty "product", the released program
                   = lambda_h * h / n + lambda_d * d / n    where a share is asked for
    coherence_cost = c * changes / n                 only if c is not 0

The score is that of the component in `reward.model`: by default log p(y* | x*, selection), as in
the paper. Under a share asked for, lambda follows what is kept (`rss_rl.learners.share_control`)
and is the learner's alone: rollouts then have no sparsity cost, and the update charges it.

Legend: M scored selections (K * B, sample-major), S sentences an example, N_s tokens of slot s.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np

from rss_rl.config import RewardConfig
from rss_rl.reward_models.reward_model import COHERENCE, SPARSITY
from rss_rl.types import DEPENDENT, HEAD, ROLES, Array

_KEPT = {"kept": [HEAD, DEPENDENT], "heads_kept": [HEAD], "dependents_kept": [DEPENDENT]}


def role_shares(selection: Array, valid: Array) -> Array:
    """The share of a sentence's tokens that each role selects, [M, 2]; 0 for an empty sentence.

    Args:
        selection: bool [M, 2, N]; bits on padding are ignored.
        valid: bool [M, N].

    Raises:
        ValueError: shapes or dtypes that do not fit.
    """
    if valid.ndim != 2 or valid.dtype != np.bool_:
        raise ValueError(f"valid must be bool [M, N], got {valid.dtype} {valid.shape}")
    expected = (valid.shape[0], ROLES, valid.shape[1])
    if selection.dtype != np.bool_ or selection.shape != expected:
        raise ValueError(
            f"selection must be bool {expected}, got {selection.dtype} {selection.shape}"
        )
    kept = (selection & valid[:, None, :]).sum(-1)  # [M, 2]
    shares: Array = kept / np.maximum(valid.sum(-1), 1)[:, None]
    return shares


def change_shares(selection: Array, valid: Array) -> Array:
    """Bit changes between neighbouring tokens, of both roles, divided by n; float32 [M].

    sum_i |z_{i+1} - z_i| / n, the fused lasso of Lei, Barzilay and Jaakkola (EMNLP 2016).

    Args:
        selection: bool [M, 2, N]. valid: bool [M, N], True first.
    """
    neighbours = (valid[:, 1:] & valid[:, :-1])[:, None]  # [M, 1, N - 1]
    changed = (selection[..., 1:] != selection[..., :-1]) & neighbours
    shares = changed.sum((-1, -2)) / np.maximum(valid.sum(-1), 1)
    return cast(Array, shares.astype(np.float32))


def cost_terms(
    selections: Sequence[Array],
    valid: Sequence[Array],
    config: RewardConfig,
    price: tuple[float, float] | None = None,
) -> dict[str, Array]:
    """The costs of M selections by name, float32 [M, S] each.

    Args:
        selections: S x bool [M, 2, N_s]. valid: S x bool [M, N_s].
        price: lambda of heads and of dependents, as it stands; None: that of the configuration,
            which is 0 where a target share is set.
    """
    pairs = list(zip(selections, valid, strict=True))
    shares = np.stack([role_shares(s, v) for s, v in pairs], axis=1)  # [M, S, 2]
    if price is None:
        kept = shares.prod(-1) if config.penalty == "product" else shares.sum(-1)
        sparsity = np.float32(config.fixed_cost) * kept.astype(np.float32)
    else:
        sparsity = (shares @ np.array(price)).astype(np.float32)
    costs: dict[str, Array] = {SPARSITY: sparsity}
    if config.coherence_cost:
        turns = np.stack([change_shares(s, v) for s, v in pairs], axis=1)
        costs[COHERENCE] = np.float32(config.coherence_cost) * turns
    return costs


def kept_shares(selections: Sequence[Array], valid: Sequence[Array]) -> dict[str, Array]:
    """Shares of the real tokens of all sentences of an example, float64 [M]; 0 if there are none.

    Args:
        selections: S x bool [M, 2, N_s]; bits on padding are ignored.
        valid: S x bool [M, N_s].

    Returns:
        `kept`, selected in either role, `heads_kept` and `dependents_kept`.
    """
    sizes = np.sum([v.sum(-1) for v in valid], axis=0)  # [M]
    shares = {}
    for name, roles in _KEPT.items():
        slots = zip(selections, valid, strict=True)
        counts = [(s[:, roles].any(1) & v).sum(-1) for s, v in slots]
        shares[name] = np.sum(counts, axis=0) / np.maximum(sizes, 1)
    return shares
