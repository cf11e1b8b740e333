"""Kernels check what they are given: they read and write wherever they are pointed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from attending import C, padded_native
from torch import Tensor

from rss_rl.ops import operators
from rss_rl.ops.attention import feature_wise_attention
from rss_rl.ops.linear_maps import gate_mix
from rss_rl.ops.masking import kept_indices
from rss_rl.ops.native import missing_compiler
from rss_rl.ops.operators import Attending, Fusion
from rss_rl.ops.packing import Pairs
from rss_rl.ops.pooling import feature_wise_pooling

pytestmark = pytest.mark.skipif(missing_compiler() is not None, reason=str(missing_compiler()))

R, D = 7, 5
STARTS = torch.tensor([0, 3, 3, 7])
POSITIONS = torch.tensor([0, 1, 2, 0, 1, 2, 3])


def normal(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def room(*shape: int, count: int = 1) -> tuple[Tensor, ...]:
    """Zeros, so that what a kernel does not write is compared, too."""
    return tuple(torch.zeros(shape) for _ in range(count))


SIDE = POSITIONS, STARTS
ATTENDING = Attending(
    normal(R, D), normal(R, D, seed=1), normal(D), normal(R, D), *SIDE, *SIDE, "before", C
)
POOLED = normal(R, D), normal(R, D, seed=1), STARTS
FUSION = Fusion(*(normal(R, D, seed=k) for k in range(4)), normal(D))
CALLS: dict[str, tuple[Any, ...]] = {
    "attention_forward": (ATTENDING, *room(R, D, count=3), None),
    "attention_backward": (
        *(ATTENDING, tuple(normal(R, D, seed=k) for k in range(3)), normal(R, D, seed=3), None),
        *(*room(R, D, count=3), *room(3, D)),
    ),
    "pooling_forward": (*POOLED, *room(3, D, count=3)),
    "pooling_backward": (
        *(*POOLED, (normal(3, D), normal(3, D) + 9, normal(3, D)), normal(3, D)),
        *room(R, D, count=2),
    ),
    "activate": (normal(R, D), normal(D), "elu", *room(R, D), None),
    "activate_back": (normal(R, D), None, normal(R, D), "relu", *room(R, D), *room(1, D)),
    "mix": (FUSION, *room(R, D)),
    "mix_back": (FUSION, normal(R, D), *room(R, D, count=3), *room(1, D)),
    "dropout": (normal(R, D), torch.arange(R), 0, 2.0, *room(R, D)),
}


def tensors(given: Any, path: tuple[int, ...] = ()) -> Iterator[tuple[tuple[int, ...], Tensor]]:
    """The tensors of arguments, also within tuples, and where each is."""
    if isinstance(given, Tensor):
        yield path, given
    elif isinstance(given, tuple):
        for k, part in enumerate(given):
            yield from tensors(part, (*path, k))


def replaced(given: Any, path: tuple[int, ...], new: Tensor) -> Any:
    if not path:
        return new
    parts = list(given)
    parts[path[0]] = replaced(parts[path[0]], path[1:], new)
    return type(given)(*parts) if hasattr(given, "_fields") else tuple(parts)


@pytest.mark.parametrize("name", CALLS)
def test_what_learns_is_refused(name: str) -> None:
    every = tensors(CALLS[name])
    path, tensor = next((at, t) for at, t in every if t.is_floating_point())
    given = replaced(CALLS[name], path, tensor.clone().requires_grad_())
    with pytest.raises(RuntimeError, match="has no gradient"):
        getattr(operators, name)(*given)
    with torch.no_grad():
        getattr(operators, name)(*given)


@pytest.mark.parametrize("name", CALLS)
def test_each_tensor_is_held_against_the_others(name: str) -> None:
    """Of another type, a row or a feature longer, or with gaps: never read as if it were not."""
    operator, given = getattr(operators, name), CALLS[name]
    for path, tensor in tensors(given):
        double = tensor.double() if tensor.is_floating_point() else tensor.float()
        longer = torch.cat([tensor, tensor[-1:]])
        wider = torch.cat([tensor, tensor[..., -1:]], -1)
        spread = torch.stack([tensor, tensor], -1)[..., 0]
        # One that sets the size that others are held against is caught by these.
        for wrong in (double, longer, wider, spread):
            with pytest.raises(ValueError):
                operator(*replaced(given, path, wrong))
        with pytest.raises((ValueError, RuntimeError)):
            operator(*replaced(given, path, tensor.to_sparse()))


@pytest.mark.parametrize("shape", [(0, 0, D), (2, 0, D), (2, 3, 0)])
def test_empty_tensors_have_empty_results(shape: tuple[int, int, int]) -> None:
    leaves = [torch.ones(shape).requires_grad_() for _ in range(3)]
    kept = torch.ones(shape[:2], dtype=torch.bool)
    pairs = Pairs(kept_indices(kept), kept_indices(kept), "before")
    outs = [
        padded_native(*leaves, pairs, C),
        feature_wise_attention(*leaves, pairs, C, "compiled"),
        feature_wise_pooling(leaves[0], leaves[1], kept, "compiled"),
        gate_mix([(leaves[0], leaves[1], leaves[2], leaves[2])]),
    ]
    for out in outs:
        gradients = torch.autograd.grad(out.sum(), leaves, allow_unused=True)
        assert not any(gradient is not None and gradient.any() for gradient in gradients)
