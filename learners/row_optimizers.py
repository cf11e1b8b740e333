"""torch's optimisers without its compiler, and two of them that update tables row by row.

Legend: V rows of a table, R of them with a gradient, E features.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from inspect import unwrap
from typing import Any, ClassVar

import torch
from torch import Tensor


class WithoutCompiler(torch.optim.Optimizer):
    """Base class, placed before one of torch's optimisers, which keeps torch._dynamo out.

    torch wraps these methods for `torch.compile`, which is not used here, and the first call of any
    of them imports torch._dynamo: a quarter of the time until the first update of a small run.
    """

    add_param_group = unwrap(torch.optim.Optimizer.add_param_group)
    state_dict = unwrap(torch.optim.Optimizer.state_dict)
    load_state_dict = unwrap(torch.optim.Optimizer.load_state_dict)

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """See `torch.optim.Optimizer.step`."""
        unwrap(super().step.__func__)(self, closure)  # type: ignore[attr-defined]

    step.hooked = True  # type: ignore[attr-defined]  # else torch wraps it, to profile it


class PlainSGD(WithoutCompiler, torch.optim.SGD):
    """torch's SGD."""


class RowOptimizer(WithoutCompiler):
    """Base class, placed before one of torch's optimisers, which updates all other parameters.

    `averages` names what torch's optimiser keeps of the shape of a table, `counter` a number that
    is kept for each row besides, [V].
    """

    averages: ClassVar[tuple[str, ...]]
    counter: ClassVar[str]

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """See `torch.optim.Optimizer.step`; a `closure` is not called.

        Raises:
            ValueError: a closure.
        """
        if closure is not None:
            raise ValueError("closures are not supported")
        updated: list[tuple[Tensor, Tensor]] = []
        for group in self.param_groups:
            for table in group["params"]:
                if table.grad is not None and self._goes_by_row(table, group):
                    if group["weight_decay"]:
                        raise ValueError(
                            "weight decay would change rows without a gradient: train without L2"
                        )
                    self._update_rows(table, table.grad, group)
                    updated.append((table, table.grad))
        for table, _ in updated:  # torch's optimiser skips what has no gradient
            table.grad = None
        try:
            super().step()
        finally:
            for table, gradient in updated:
                table.grad = gradient

    step.hooked = True  # type: ignore[attr-defined]

    def _goes_by_row(self, table: Tensor, group: dict[str, Any]) -> bool:
        """Whether a table, which has a gradient, is updated by `_update_rows`."""
        raise NotImplementedError

    def _update_rows(self, table: Tensor, gradient: Tensor, group: dict[str, Any]) -> None:
        """Update the rows with a gradient [V, E]."""
        raise NotImplementedError

    def _state_of(self, table: Tensor) -> dict[str, Any]:
        state: dict[str, Any] = self.state[table]
        if not state:
            state["step"] = torch.zeros((), dtype=torch.float32, device=table.device)
            state |= {name: torch.zeros_like(table) for name in self.averages}
            # In the table's dtype, as torch casts loaded state to it; exact up to 2^24 updates.
            state[self.counter] = table.new_zeros(len(table))
        return state


class RowAdam(RowOptimizer, torch.optim.Adam):
    """torch's Adam, which updates parameters in groups with `rows` set row by row.

    Each row is a parameter vector with its own averages m, v and its own update count t:

        t <- t + 1,  m <- b1 m + (1 - b1) g,  v <- b2 v + (1 - b2) g²,
        theta <- theta - rate (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + eps)

    A row with zero gradient does not move, and its averages do not decay. Its path therefore
    depends only on the batches that contain it, and a step costs time in proportion to the batch's
    rows. Gradients of these tables are sparse and coalesced, or dense. The counter is the number of
    updates of a row, exact up to 2^24.

    Source: Kingma and Ba, Adam (2015); lazy like torch.optim.SparseAdam and TensorFlow's LazyAdam,
    but with the bias corrected by each row's own count, as in DGL's SparseAdam, not by the table's.
    """

    averages = ("exp_avg", "exp_avg_sq")
    counter = "row_updates"

    def _goes_by_row(self, table: Tensor, group: dict[str, Any]) -> bool:
        return bool(group.get("rows"))

    def _update_rows(self, table: Tensor, gradient: Tensor, group: dict[str, Any]) -> None:
        """Update the rows with a gradient [V, E]."""
        rows, values = nonzero_rows(gradient)
        state = self._state_of(table)
        state["step"] += 1
        first_decay, second_decay = group["betas"]
        count = state[self.counter][rows] + 1  # [R]
        logs = [math.log(decay) if decay else -math.inf for decay in group["betas"]]
        missing = torch.expm1(count[:, None] * count.new_tensor(logs)).neg_()  # 1 - b^t, [R, 2]
        of_first, of_second = missing.chunk(2, 1)
        first = state["exp_avg"][rows].lerp_(values, 1 - first_decay)
        second = state["exp_avg_sq"][rows]
        second.mul_(second_decay).addcmul_(values, values, value=1 - second_decay)
        state[self.counter][rows] = count
        state["exp_avg"].index_copy_(0, rows, first)
        state["exp_avg_sq"].index_copy_(0, rows, second)
        second.div_(of_second).sqrt_().add_(group["eps"])
        table.index_add_(0, rows, first.div_(of_first).div_(second), alpha=-group["lr"])


def nonzero_rows(gradient: Tensor) -> tuple[Tensor, Tensor]:
    """Which rows of a gradient [V, E], dense or coalesced sparse, are not 0, and these: [R, E].

    They do not depend on the layout that backward produced.
    """
    values = gradient.values() if gradient.is_sparse else gradient
    kept = values.any(1).nonzero()[:, 0]
    return gradient.indices()[0, kept] if gradient.is_sparse else kept, values[kept]


class RowAdadelta(RowOptimizer, torch.optim.Adadelta):
    """torch's Adadelta, in which a sparse gradient updates only its own rows.

        a <- rho a + (1 - rho) g^2,  d = sqrt(b + eps) / sqrt(a + eps) g,
        b <- rho b + (1 - rho) d^2,  theta <- theta - rate d

    A row without a gradient does not move; its averages only decay. The decay of k missed updates
    is applied as one factor rho^k at the row's next gradient, so the result equals an update of
    all rows up to the rounding of that power. The counter is the update at which a row's averages
    were last brought up to date.

    Source: Zeiler, ADADELTA: An Adaptive Learning Rate Method (2012).
    """

    averages = ("square_avg", "acc_delta")
    counter = "row_steps"

    def _goes_by_row(self, table: Tensor, group: dict[str, Any]) -> bool:
        assert table.grad is not None
        return table.grad.is_sparse

    def _update_rows(self, table: Tensor, gradient: Tensor, group: dict[str, Any]) -> None:
        """Update the rows [R] of a coalesced sparse gradient [V, E]."""
        rho, eps = group["rho"], group["eps"]
        rows, values = gradient.indices()[0], gradient.values()  # [R], [R, E]
        state = self._state_of(table)
        state["step"] += 1
        last = state[self.counter]
        missed = (state["step"] - 1 - last[rows]).double()  # rho^0 is exactly 1
        decay = torch.pow(rho, missed).to(values.dtype)[:, None]
        square, change = (state[key][rows] * decay for key in ("square_avg", "acc_delta"))
        square.mul_(rho).addcmul_(values, values, value=1 - rho)
        move = change.add(eps).sqrt_().div_(square.add(eps).sqrt_()).mul_(values)
        change.mul_(rho).addcmul_(move, move, value=1 - rho)
        state["square_avg"].index_copy_(0, rows, square)
        state["acc_delta"].index_copy_(0, rows, change)
        table.index_add_(0, rows, move, alpha=-group["lr"])
        last[rows] = state["step"].to(last.dtype)
