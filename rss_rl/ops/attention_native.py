"""Feature-wise attention by the package's own kernels for a CPU: O(M (J + I) D) memory.

Legend: M sequences, J heads, I dependents, D features; X heads and Y dependents of all
sequences.
"""

from __future__ import annotations

__all__ = ["Backward", "Forward", "Problem", "native_attention", "side_of"]

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from rss_rl.ops.attention_pairs import Order, PackedPairs, Pairs
from rss_rl.ops.masking import Gathered
from rss_rl.ops.native import OutOfRange, run_kernel, threads_for
from rss_rl.ops.packing import Packed, even_starts

_LARGEST_SCORE = 40.0
"""Processors without fused products round 2 u / c, which moves E by up to 6e-8 |2 u / c| and a
weight by c / 2 times that: 2.4e-6."""
_LARGEST_EXPONENT = 40.0
"""E F stays under e^80, and neither E nor F is rounded to 0."""
_LARGEST_SCALE = 40.0
"""A weight is e^(-2c) or more, and stays a normal number."""
_ORDERS: dict[Order, int] = {"before": 0, "after": 1, "others": 2}


class Problem(ctypes.Structure):
    """`Problem` of the kernels' source."""

    _fields_ = (
        ("head_scores", ctypes.c_void_p),
        ("dependent_scores", ctypes.c_void_p),
        ("bias", ctypes.c_void_p),
        ("values", ctypes.c_void_p),
        ("heads", ctypes.c_void_p),
        ("dependents", ctypes.c_void_p),
        ("head_starts", ctypes.c_void_p),
        ("dependent_starts", ctypes.c_void_p),
        ("sequences", ctypes.c_int64),
        ("features", ctypes.c_int64),
        ("stride", ctypes.c_int64),
        ("brief", ctypes.c_int64),
        ("order", ctypes.c_int64),
        ("threads", ctypes.c_int64),
        ("scale", ctypes.c_double),
        ("largest", ctypes.c_double),
    )

    @classmethod
    def of(
        cls,
        scores: tuple[Tensor, Tensor],
        bias: Tensor | None,
        values: Tensor,
        sides: Sequence[Tensor],
        order: Order,
        scale: float,
    ) -> Problem:
        """Of tensors that must outlive it.

        Args:
            scores: v and u, whose rows may be parts of longer ones. bias: added to v.
            values: h. sides: positions and starts of the heads, and of the dependents.

        Raises:
            OutOfRange: the scale is too large.
        """
        if not scale <= _LARGEST_SCALE:
            raise OutOfRange
        heads, head_starts, dependents, dependent_starts = sides
        sequences, features = len(head_starts) - 1, values.shape[-1]
        return cls(
            *(tensor.data_ptr() for tensor in scores),
            None if bias is None else bias.data_ptr(),
            *(t.data_ptr() for t in (values, heads, dependents, head_starts, dependent_starts)),
            *(sequences, features, scores[0].stride(-2), scores[0].dtype == torch.bfloat16),
            _ORDERS[order],
            threads_for(heads.numel() * features * dependents.numel() // max(1, sequences)),
            scale,
            min(_LARGEST_SCORE, _LARGEST_EXPONENT * scale / 2.0),
        )


class _Pointers(ctypes.Structure):
    """Of tensors, or null."""

    @classmethod
    def of(cls, **tensors: Tensor | None) -> _Pointers:
        """By the names of the fields, tensors that must outlive it."""
        return cls(**{k: None if t is None else t.data_ptr() for k, t in tensors.items()})


class Forward(_Pointers):
    """`Forward` of the kernels' source."""

    _fields_ = tuple(
        (name, ctypes.c_void_p) for name in ("context", "inverse", "by_head", "brief_context")
    )


class Backward(_Pointers):
    """`Backward` of the kernels' source."""

    _fields_ = tuple(
        (name, ctypes.c_void_p)
        for name in (
            *("context", "inverse", "by_head", "gradient", "more_gradient", "more_value"),
            *("head_scores", "dependent_scores", "values", "head_sums"),
        )
    )


def native_attention(
    head_scores: Tensor,
    dependent_scores: Tensor,
    values: Tensor,
    pairs: Pairs | PackedPairs,
    scale: float,
) -> Tensor:
    """As `feature_wise_attention`, of tensors on the CPU of one type, float32 or float64.

    Where the pairs are packed, so are all tensors: v is [X, D], u and h are [Y, D].

    A row's result does not depend, not even in its last bit, on what else is in the batch or on the
    number of threads.

    Raises:
        OutOfRange: a score or the scale is too large, or not a number.
        KernelsError: they cannot be compiled here.
    """
    inputs = head_scores, dependent_scores, values
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in inputs):
        return _Native.apply(*inputs, pairs, scale)  # type: ignore[no-any-return, no-untyped-call]
    return _Call.of(*inputs, pairs, scale).forward(train=False)[0]


def side_of(tokens: Gathered | Packed) -> tuple[Tensor, Tensor]:
    """Positions in rows, int64, negative where none is kept; and the rows' `starts`."""
    if isinstance(tokens, Packed):
        return tokens.position, tokens.starts
    positions = torch.where(tokens.kept, tokens.index, -1).contiguous()
    return positions, even_starts(*positions.shape)


@dataclass(frozen=True)
class _Call:
    """What the kernels are given.

    inputs  v [M, J, D], u and h [M, I, D]; or [X, D] and [Y, D]
    sides   positions and starts of the heads, and of the dependents
    """

    inputs: tuple[Tensor, Tensor, Tensor]
    sides: tuple[Tensor, ...]
    order: Order
    scale: float

    @classmethod
    def of(cls, v: Tensor, u: Tensor, h: Tensor, pairs: Pairs | PackedPairs, scale: float) -> _Call:
        """Of what `native_attention` is given."""
        heads = side_of(pairs.heads)
        dependents = heads if pairs.dependents is pairs.heads else side_of(pairs.dependents)
        tensors = (v.detach().contiguous(), u.detach().contiguous(), h.detach().contiguous())
        return cls(tensors, (*heads, *dependents), pairs.order, scale)

    def forward(self, *, train: bool) -> tuple[Tensor, ...]:
        """s, shaped as v; to `train` also 1 / sum of weights and ds_j / dv_j."""
        results = [torch.empty_like(self.inputs[0]) for _ in range(3 if train else 1)]
        names = ("context", "inverse", "by_head")
        self._run("forward", Forward.of(**dict(zip(names, results, strict=False))))
        return tuple(results)

    def backward(
        self, context: Tensor, inverse: Tensor, by_head: Tensor, gradient: Tensor
    ) -> tuple[Tensor, ...]:
        """dv, du and dh."""
        flow = gradient.contiguous()
        found = tuple(torch.empty_like(tensor) for tensor in self.inputs)
        made = {"context": context, "inverse": inverse, "by_head": by_head, "gradient": flow}
        names = ("head_scores", "dependent_scores", "values")
        self._run("backward", Backward.of(**made, **dict(zip(names, found, strict=True))))
        return found

    def _run(self, name: str, made: _Pointers) -> None:
        v, u, h = self.inputs
        problem = Problem.of((v, u), None, h, self.sides, self.order, self.scale)
        run_kernel(f"attention_{name}", v.dtype, problem, made)


class _Native(torch.autograd.Function):
    """The gradient by head is made on the way forward, those by dependent on the way back."""

    @staticmethod
    def forward(
        ctx: Any,
        head_scores: Tensor,
        dependent_scores: Tensor,
        values: Tensor,
        pairs: Pairs | PackedPairs,
        scale: float,
    ) -> Tensor:
        call = _Call.of(head_scores, dependent_scores, values, pairs, scale)
        context, inverse, by_head = call.forward(train=True)
        ctx.save_for_backward(*call.inputs, *call.sides, context, inverse, by_head)
        ctx.rest = pairs.order, scale
        return context

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        v, u, h, *sides, context, inverse, by_head = ctx.saved_tensors
        call = _Call((v, u, h), tuple(sides), *ctx.rest)
        return (*call.backward(context, inverse, by_head, gradient), None, None)
