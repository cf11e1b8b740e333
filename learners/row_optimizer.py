"""torch's optimisers without its compiler, and the base of those that update tables row by row.

Legend: V rows of a table, E features.
"""

from __future__ import annotations

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
    zero_grad = unwrap(torch.optim.Optimizer.zero_grad)
    state_dict = unwrap(torch.optim.Optimizer.state_dict)
    load_state_dict = unwrap(torch.optim.Optimizer.load_state_dict)

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """See `torch.optim.Optimizer.step`."""
        unwrap(super().step.__func__)(self, closure)  # type: ignore[attr-defined]


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
