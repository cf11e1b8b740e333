"""The recurrence of a simple recurrent unit (SRU), whose gates do not depend on its state.

Legend: M sequences, N tokens, D features.
Source: Lei and Zhang, Training RNNs as Fast as CNNs (2017), equation 5.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


def gated_average(values: Tensor, forget: Tensor, *, forward: bool) -> Tensor:
    """c_t = f_t * c_{t-1} + (1 - f_t) * x_t over dimension 1, with c_0 = 0.

    Args:
        values: x, [M, N, D].
        forget: f in [0, 1], [M, N, D].
        forward: True = from the first token to the last; False = from the last to the first, where
            zeros in `values` after a sentence's last token leave the state at 0.

    Returns:
        c, [M, N, D].

    Raises:
        ValueError: shapes that do not fit.
    """
    if values.ndim != 3 or values.shape != forget.shape:
        raise ValueError(
            f"values {tuple(values.shape)} and forget {tuple(forget.shape)} must be of one shape"
            " [M, N, D]"
        )
    return _GatedAverage.apply(values, forget, forward)  # type: ignore[no-any-return, no-untyped-call]


def _steps(tokens: int, *, forward: bool) -> Iterator[tuple[int, int]]:
    """Each token but the first processed, with the one processed before it."""
    order = range(tokens) if forward else range(tokens - 1, -1, -1)
    return zip(order[1:], order, strict=False)


class _GatedAverage(torch.autograd.Function):
    """One in-place multiply-add per token, forward and backward: no autograd graph of N steps."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, forget: Tensor, forward: bool) -> Tensor:
        states = torch.lerp(values, torch.zeros_like(values), forget)  # (1 - f) x
        state_at, forget_at = states.unbind(1), forget.unbind(1)
        for token, before in _steps(values.shape[1], forward=forward):
            state_at[token].addcmul_(forget_at[token], state_at[before])
        ctx.save_for_backward(values, forget, states)
        ctx.looks_back = forward
        return states

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """With g_t = dc_t + f_{t+1} g_{t+1}: dx_t = (1 - f_t) g_t, df_t = (c_{t-1} - x_t) g_t."""
        values, forget, states = ctx.saved_tensors
        flow = gradient.clone(memory_format=torch.contiguous_format)
        flow_at, forget_at = flow.unbind(1), forget.unbind(1)
        for before, token in _steps(values.shape[1], forward=not ctx.looks_back):
            flow_at[before].addcmul_(forget_at[token], flow_at[token])
        earlier = torch.zeros_like(states)
        if ctx.looks_back:
            earlier[:, 1:] = states[:, :-1]
        else:
            earlier[:, :-1] = states[:, 1:]
        by_forget = earlier.sub_(values).mul_(flow)
        return flow.sub_(flow * forget), by_forget, None
