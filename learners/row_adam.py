"""Adam that updates of a table the rows alone that have a gradient.

A row is a parameter vector of its own, with averages m, v and a count t of its own updates:

    t <- t + 1,  m <- b1 m + (1 - b1) g,  v <- b2 v + (1 - b2) g²,
    theta <- theta - rate (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + eps)

A row whose gradient is zero neither moves nor forgets. So its path depends on the batches that
touch it and on nothing in between, and a step costs what its batch has of rows.

Legend: V rows of a table, R of them with a gradient, E features.
Source: Kingma and Ba, Adam (2015); lazy as torch.optim.SparseAdam and TensorFlow's LazyAdam are,
which correct the bias of all rows by the number of steps of the table; by each row's own number as
in DGL's SparseAdam.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from rss_rl.learners.row_gradients import set_aside

ROW_UPDATES = "row_updates"
"""State of a table: how many updates each row has had, [V]; up to 2^24 are exact."""


class RowAdam(torch.optim.Adam):
    """torch's Adam, of the parameters in groups with `rows` set by row.

    Gradients of such tables are sparse and coalesced, or dense.
    """

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """See `torch.optim.Optimizer.step`; a `closure` is not called.

        Raises:
            ValueError: a closure.
        """
        if closure is not None:
            raise ValueError("losses are not evaluated again")
        updated: list[Tensor] = []
        for group in self.param_groups:
            for table in group["params"] if group.get("rows") else ():
                if table.grad is not None:
                    self._update_rows(table, table.grad, group)
                    updated.append(table)
        with set_aside(updated):
            super().step()

    def _update_rows(self, table: Tensor, gradient: Tensor, group: dict[str, Any]) -> None:
        """The update of the legend."""
        if group["weight_decay"]:
            raise ValueError("rows without a gradient would decay: they go without L2")
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

    def _state_of(self, table: Tensor) -> dict[str, Any]:
        state: dict[str, Any] = self.state[table]
        if not state:
            state["step"] = torch.zeros((), dtype=torch.float32, device=table.device)
            state["exp_avg"] = torch.zeros_like(table)
            state["exp_avg_sq"] = torch.zeros_like(table)
        if ROW_UPDATES not in state:  # so far all rows were updated, or none
            state[ROW_UPDATES] = table.new_full((len(table),), float(state["step"]))
        return state


def _correction(decay: float, count: Tensor) -> Tensor:
    """1 - decay^count as a column, in float64."""
    base = torch.tensor(decay, dtype=torch.float64, device=count.device)
    return (1 - base.pow(count.double()))[:, None]


def without_zero_rows(gradient: Tensor) -> Tensor:
    """A gradient [V, E], dense or sparse and coalesced, as a sparse one of the rows that are not 0.

    So a row is touched by what a batch has to say about it, and not by how that was computed.
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
