"""Adadelta in one pass over memory, and updates of tables of which a batch touches few rows.

    a <- rho a + (1 - rho) g^2,  d = sqrt(b + eps) / sqrt(a + eps) g,  b <- rho b + (1 - rho) d^2,
    theta <- theta - rate d

Legend: V rows of a table, R of them with a gradient, E features.
Source: Zeiler, ADADELTA: An Adaptive Learning Rate Method (2012).
"""

from __future__ import annotations

__all__ = ["ROW_STEPS", "Adadelta"]

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from rss_rl.ops.attention import KernelBackend
from rss_rl.ops.native import run_kernel, threads_for

ROW_STEPS = "row_steps"
"""State of a table: the update at which each row's averages were last brought up to date, [V]."""
_BLOCK = 1 << 15
"""Numbers of a block where torch computes: with state and temporaries 768 kB, which stay in L2."""
_STEPS = 4
"""Of the innermost loop, a number is as long as so many: two roots, a quotient, seven accesses."""


_Four = tuple[Tensor, Tensor, Tensor, Tensor]
"""A parameter, its gradient, a and b."""


class _Given(ctypes.Structure):
    """`Parameter` of the kernel's source."""

    _fields_ = (
        ("values", ctypes.c_void_p),
        ("gradient", ctypes.c_void_p),
        ("square", ctypes.c_void_p),
        ("change", ctypes.c_void_p),
        ("count", ctypes.c_int64),
        ("rate", ctypes.c_double),
        ("decay", ctypes.c_double),
    )

    @classmethod
    def of(cls, four: _Four, group: dict[str, Any]) -> _Given:
        """Of contiguous tensors, which must outlive it."""
        pointers = (tensor.data_ptr() for tensor in four)
        return cls(*pointers, four[0].numel(), group["lr"], group["weight_decay"])


class Adadelta(torch.optim.Adadelta):
    """torch's Adadelta on CPU tensors, in one pass; sparse gradients update their rows alone.

    A row without a gradient does not move, and its averages only decay: that is made up for, in one
    multiplication by rho^k, when it next has one. So it equals an update of all rows up to the
    rounding of that power.

    Args:
        backend: of all processes that share a run, as the two differ in their last bits. eager is
            block by block, each of which stays in the cache, and equals torch's to the bit.
    """

    def __init__(self, *given: Any, backend: KernelBackend = "eager", **options: Any) -> None:
        super().__init__(*given, **options)
        self._backend = backend

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """See `torch.optim.Optimizer.step`; a `closure` is not called.

        Raises:
            ValueError: a closure.
        """
        if closure is not None:
            raise ValueError("losses are not evaluated again")
        learning = [
            (parameter, group)
            for group in self.param_groups
            for parameter in group["params"]
            if parameter.grad is not None
        ]
        for parameter, group in learning:
            if not parameter.grad.is_sparse:
                _catch_up(self.state[parameter], group["rho"])
        if any(parameter.device.type != "cpu" for parameter, _ in learning):
            super().step()  # whose kernels take all parameters at once
            return
        alike: dict[tuple[object, ...], list[tuple[_Four, dict[str, Any]]]] = {}
        for parameter, group in learning:
            state, gradient = self._state_of(parameter), parameter.grad
            if gradient.is_sparse:
                _update_rows(parameter, gradient, state, group, self._has_kernel(parameter))
                continue
            four = (parameter, gradient, state["square_avg"], state["acc_delta"])
            if not all(tensor.is_contiguous() for tensor in four):
                _update_block(*four, group)
                continue
            kind = parameter.dtype, group["rho"], group["eps"]
            alike.setdefault(kind, []).append((four, group))
        for some in alike.values():
            _update_all(some, kernel=self._has_kernel(some[0][0][0]))

    def _has_kernel(self, parameter: Tensor) -> bool:
        kind = parameter.dtype in (torch.float32, torch.float64)
        return self._backend == "compiled" and kind

    def _state_of(self, parameter: Tensor) -> dict[str, Any]:
        """With the number of this step."""
        state: dict[str, Any] = self.state[parameter]
        if not state:
            state["step"] = torch.zeros((), dtype=torch.float32)
            state["square_avg"] = torch.zeros_like(parameter)
            state["acc_delta"] = torch.zeros_like(parameter)
        state["step"] += 1
        return state


def _update_all(given: Sequence[tuple[_Four, dict[str, Any]]], *, kernel: bool) -> None:
    """The update of contiguous parameters that have a type, rho and eps in common."""
    (first, *_), group = given[0]
    if not kernel:
        for four, its in given:
            parts = (tensor.view(-1).split(_BLOCK) for tensor in four)  # type: ignore[no-untyped-call]
            for values, gradient, square, change in zip(*parts, strict=True):
                _update_block(values, gradient, square, change, its)
        return
    table = (_Given * len(given))(*(_Given.of(*item) for item in given))
    threads = threads_for(_STEPS * sum(entry.count for entry in table))
    numbers = len(given), float(group["rho"]), float(group["eps"]), threads
    run_kernel("adadelta", first.dtype, table, *numbers)


def _update_block(
    values: Tensor, gradient: Tensor, square: Tensor, change: Tensor, group: dict[str, Any]
) -> None:
    """The update of the legend, in place; in the order of torch's operations."""
    rho, eps = group["rho"], group["eps"]
    if group["weight_decay"]:
        gradient = gradient.add(values, alpha=group["weight_decay"])
    square.mul_(rho).addcmul_(gradient, gradient, value=1 - rho)
    move = change.add(eps).sqrt_().div_(square.add(eps).sqrt_()).mul_(gradient)
    change.mul_(rho).addcmul_(move, move, value=1 - rho)
    values.add_(move, alpha=-group["lr"])


def _update_rows(
    table: Tensor, gradient: Tensor, state: dict[str, Any], group: dict[str, Any], kernel: bool
) -> None:
    """The update of the rows [R] of a coalesced sparse gradient [V, E]."""
    if group["weight_decay"]:
        raise ValueError("rows without a gradient would decay: a sparse one goes without L2")
    rows, values = gradient.indices()[0], gradient.values()  # [R], [R, E]
    last = _row_steps(table, state)
    whole = (table, values, state["square_avg"], state["acc_delta"], last, rows)
    if kernel and all(tensor.is_contiguous() for tensor in whole):
        numbers = (state["step"], group["lr"], group["rho"], group["eps"])
        threads = threads_for(_STEPS * values.numel())
        run_kernel(
            "adadelta_rows", table.dtype, *whole, *values.shape, *map(float, numbers), threads
        )
        return
    decay = _decay(state["step"] - 1 - last[rows], group["rho"], values.dtype)
    square = state["square_avg"][rows] * decay
    change = state["acc_delta"][rows] * decay
    moved = table[rows]
    _update_block(moved, values, square, change, group)
    state["square_avg"].index_copy_(0, rows, square)
    state["acc_delta"].index_copy_(0, rows, change)
    table.index_copy_(0, rows, moved)
    last[rows] = state["step"].to(last.dtype)


def _row_steps(table: Tensor, state: dict[str, Any]) -> Tensor:
    """[V] in the table's dtype, as torch casts what it loads; up to 2^24 updates are exact."""
    if ROW_STEPS not in state:  # so far all rows were updated, or none
        state[ROW_STEPS] = table.new_full((len(table),), float(state["step"]) - 1)
    found: Tensor = state[ROW_STEPS]
    return found


def _catch_up(state: dict[str, Any], rho: float) -> None:
    """Bring every row to the last update, before one that touches all of them."""
    if ROW_STEPS in state:
        square = state["square_avg"]
        decay = _decay(state["step"] - state.pop(ROW_STEPS), rho, square.dtype)
        square *= decay
        state["acc_delta"] *= decay


def _decay(missed: Tensor, rho: float, dtype: torch.dtype) -> Tensor:
    """rho^missed as a column; exactly 1 where no update was missed."""
    return torch.pow(torch.tensor(rho, dtype=torch.float64), missed.double()).to(dtype)[:, None]
