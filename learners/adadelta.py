"""Adadelta that updates only the embedding rows in the batch.

    a <- rho a + (1 - rho) g^2,  d = sqrt(b + eps) / sqrt(a + eps) g,  b <- rho b + (1 - rho) d^2,
    theta <- theta - rate d

Legend: V rows of a table, R of them with a gradient, E features.
Source: Zeiler, ADADELTA: An Adaptive Learning Rate Method (2012).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from rss_rl.learners.row_optimizer import RowOptimizer

ROW_STEPS = "row_steps"
"""State of a table: the update at which each row's averages were last brought up to date, [V]."""


class RowAdadelta(RowOptimizer, torch.optim.Adadelta):
    """torch's Adadelta, in which a sparse gradient updates only its own rows.

    A row without a gradient does not move; its averages only decay. The decay of k missed updates
    is applied as one factor rho^k at the row's next gradient, so the result equals an update of
    all rows up to the rounding of that power.
    """

    averages = ("square_avg", "acc_delta")
    counter = ROW_STEPS

    def _goes_by_row(self, table: Tensor, group: dict[str, Any]) -> bool:
        assert table.grad is not None
        return table.grad.is_sparse

    def _update_rows(self, table: Tensor, gradient: Tensor, group: dict[str, Any]) -> None:
        """Update the rows [R] of a coalesced sparse gradient [V, E]."""
        rho, eps = group["rho"], group["eps"]
        rows, values = gradient.indices()[0], gradient.values()  # [R], [R, E]
        state = self._state_of(table)
        state["step"] += 1
        last = state[ROW_STEPS]
        decay = _decay(state["step"] - 1 - last[rows], rho, values.dtype)
        square, change = (state[key][rows] * decay for key in ("square_avg", "acc_delta"))
        square.mul_(rho).addcmul_(values, values, value=1 - rho)
        move = change.add(eps).sqrt_().div_(square.add(eps).sqrt_()).mul_(values)
        change.mul_(rho).addcmul_(move, move, value=1 - rho)
        state["square_avg"].index_copy_(0, rows, square)
        state["acc_delta"].index_copy_(0, rows, change)
        table.index_add_(0, rows, move, alpha=-group["lr"])
        last[rows] = state["step"].to(last.dtype)


def _decay(missed: Tensor, rho: float, dtype: torch.dtype) -> Tensor:
    """rho^missed as a column; exactly 1 where no update was missed."""
    return torch.pow(torch.tensor(rho, dtype=torch.float64), missed.double()).to(dtype)[:, None]
