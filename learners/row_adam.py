"""Adam that updates only the embedding rows with a gradient.

Each row is a parameter vector with its own averages m, v and its own update count t:

    t <- t + 1,  m <- b1 m + (1 - b1) g,  v <- b2 v + (1 - b2) g²,
    theta <- theta - rate (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + eps)

A row with zero gradient does not move, and its averages do not decay. Its path therefore depends
only on the batches that contain it, and a step costs time in proportion to the batch's rows.

Legend: V rows of a table, R of them with a gradient, E features.
Source: Kingma and Ba, Adam (2015); lazy like torch.optim.SparseAdam and TensorFlow's LazyAdam, but
with the bias corrected by each row's own count, as in DGL's SparseAdam, not by the table's.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from rss_rl.learners.row_optimizer import RowOptimizer

ROW_UPDATES = "row_updates"
"""Optimiser state: the number of updates of each row, [V]; exact up to 2^24."""


class RowAdam(RowOptimizer, torch.optim.Adam):
    """torch's Adam, which updates parameters in groups with `rows` set row by row.

    Gradients of these tables are sparse and coalesced, or dense.
    """

    averages = ("exp_avg", "exp_avg_sq")
    counter = ROW_UPDATES

    def _goes_by_row(self, table: Tensor, group: dict[str, Any]) -> bool:
        return bool(group.get("rows"))

    def _update_rows(self, table: Tensor, gradient: Tensor, group: dict[str, Any]) -> None:
        """Update the rows with a gradient [V, E]."""
        gradient = without_zero_rows(gradient)
        rows, values = gradient.indices()[0], gradient.values()
        state = self._state_of(table)
        state["step"] += 1
        first_decay, second_decay = group["betas"]
        count = state[ROW_UPDATES][rows] + 1  # [R]
        first = state["exp_avg"][rows].lerp_(values, 1 - first_decay)
        second = state["exp_avg_sq"][rows]
        second.mul_(second_decay).addcmul_(values, values, value=1 - second_decay)
        state[ROW_UPDATES][rows] = count
        state["exp_avg"].index_copy_(0, rows, first)
        state["exp_avg_sq"].index_copy_(0, rows, second)
        rate = group["lr"] / _correction(first_decay, count)  # [R, 1], in float64
        second.div_(_correction(second_decay, count).to(second.dtype)).sqrt_().add_(group["eps"])
        table.index_add_(0, rows, first.div_(second).mul_(rate.to(first.dtype)), alpha=-1)


def _correction(decay: float, count: Tensor) -> Tensor:
    """1 - decay^count as a column, in float64."""
    base = torch.tensor(decay, dtype=torch.float64, device=count.device)
    return (1 - base.pow(count.double()))[:, None]


def without_zero_rows(gradient: Tensor) -> Tensor:
    """A gradient [V, E], dense or coalesced sparse, as a sparse one of its nonzero rows.

    Which rows are updated then does not depend on the layout that backward produced.
    """
    if gradient.is_sparse:
        rows, values = gradient.indices()[0], gradient.values()
        kept = values.ne(0).any(1)
        if bool(kept.all()):
            return gradient
        rows, values = rows[kept], values[kept]
    else:
        rows = gradient.ne(0).any(1).nonzero()[:, 0]
        values = gradient[rows]
    return torch.sparse_coo_tensor(
        rows[None], values, gradient.shape, is_coalesced=True, check_invariants=False
    )
