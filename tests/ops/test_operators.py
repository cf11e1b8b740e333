"""Kernels as torch sees them: operators with a schema, that torch.compile traces through."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from attending import C, padded_native
from torch import Tensor

from rss_rl.ops import operators
from rss_rl.ops.attention import feature_wise_attention
from rss_rl.ops.attention_native import native_attention
from rss_rl.ops.attention_pairs import PackedPairs, Pairs
from rss_rl.ops.compilers import missing_compiler
from rss_rl.ops.linear_maps import gate_mix, linear_maps
from rss_rl.ops.masking import kept_indices
from rss_rl.ops.packing import Packed
from rss_rl.ops.pooling import feature_wise_pooling, packed_pooling

pytestmark = pytest.mark.skipif(missing_compiler() is not None, reason=str(missing_compiler()))

R, D = 7, 5
STARTS = torch.tensor([0, 3, 3, 7])
POSITIONS = torch.tensor([0, 1, 2, 0, 1, 2, 3])


def normal(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def room(*shape: int, count: int = 1) -> tuple[Tensor, ...]:
    """Zeros, so that what a kernel does not write is compared, too."""
    return tuple(torch.zeros(shape) for _ in range(count))


def attending() -> tuple[Any, ...]:
    sides = POSITIONS, STARTS, POSITIONS, STARTS
    return (*(normal(R, D, seed=k) for k in range(2)), normal(D), normal(R, D), *sides, "others", C)


POOLED = normal(R, D), normal(R, D, seed=1), STARTS
SIDES = (*(normal(R, D, seed=k) for k in range(4)), normal(D))
CALLS: dict[str, tuple[Any, ...]] = {
    "attention_forward": (*attending(), *room(R, D, count=3), None),
    "attention_backward": (
        *(*attending(), *(normal(R, D, seed=k) for k in range(4)), None, False),
        *(*room(R, D, count=3), *room(3, D)),
    ),
    "pooling_forward": (*POOLED, *room(3, D, count=3)),
    "pooling_backward": (
        *(*POOLED, normal(3, D), normal(3, D) + 9, normal(3, D), normal(3, D)),
        *room(R, D, count=2),
    ),
    "activate": (normal(R, D), normal(D), "elu", *room(R, D), None),
    "activate_back": (normal(R, D), None, normal(R, D), "relu", *room(R, D), *room(1, D)),
    "mix": (*SIDES, *room(R, D)),
    "mix_back": (*SIDES, normal(R, D), *room(R, D, count=3), *room(1, D)),
    "dropout": (normal(R, D), torch.arange(R), 0, 2.0, *room(R, D)),
}


def test_each_is_called() -> None:
    assert {f"rss_rl::{name}" for name in CALLS} == operators.registered


@pytest.mark.parametrize("name", CALLS)
def test_schema_and_fake_are_right(name: str) -> None:
    """What is written to, and nothing else, is what the schema says."""
    torch.library.opcheck(getattr(operators, name), CALLS[name])


@pytest.mark.parametrize("name", CALLS)
def test_what_learns_is_refused(name: str) -> None:
    given = list(CALLS[name])
    first = next(k for k, value in enumerate(given) if getattr(value, "is_floating_point", bool)())
    given[first] = given[first].clone().requires_grad_()
    with pytest.raises(RuntimeError, match="has no gradient"):
        getattr(operators, name)(*given)
    with torch.no_grad():
        getattr(operators, name)(*given)


@pytest.mark.parametrize("name", CALLS)
def test_each_tensor_is_held_against_the_others(name: str) -> None:
    """Of another type, a row or a feature longer, or with gaps: never read as if it were not."""
    operator, given = getattr(operators, name), CALLS[name]
    for k, tensor in enumerate(given):
        if not isinstance(tensor, Tensor):
            continue
        double = tensor.double() if tensor.is_floating_point() else tensor.float()
        longer = torch.cat([tensor, tensor[-1:]])
        wider = torch.cat([tensor, tensor[..., -1:]], -1)
        spread = torch.stack([tensor, tensor], -1)[..., 0]
        # One that sets the size that others are held against is caught by these.
        for wrong in (double, longer, wider, spread):
            with pytest.raises(ValueError):
                operator(*given[:k], wrong, *given[k + 1 :])
        with pytest.raises(NotImplementedError):
            operator(*given[:k], tensor.to_sparse(), *given[k + 1 :])


TOKENS = Packed.of([torch.ones(2, 3, dtype=torch.bool)])
COMPILED: dict[str, Callable[..., Tensor]] = {
    "attention": lambda x, w: native_attention(
        x @ w, x + 1, x, PackedPairs(TOKENS, TOKENS, "before"), C
    ),
    "pooling": lambda x, w: packed_pooling(x @ w, x, TOKENS),
    "padded pooling": lambda x, w: feature_wise_pooling(
        (x @ w).view(2, 3, D), x.view(2, 3, D), torch.ones(2, 3, dtype=torch.bool), "compiled"
    ),
    "linear maps": lambda x, w: linear_maps(x, [w, w.T], [None, w[0]], activation="elu")[1],
    "gate": lambda x, w: gate_mix([(x, x @ w, x + 1, x + 2), (x + 3, x + 4, x + 5, x + 6)]),
}


@pytest.mark.filterwarnings(  # of what torch does itself while it traces
    "ignore:.*should not be instantiated:DeprecationWarning",
    "ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning",
)
@pytest.mark.parametrize("name", COMPILED)
def test_torch_compile_traces_through(name: str) -> None:
    """In one graph, both ways; but for the order in which gradients add up, to the last bit."""
    work, found = COMPILED[name], []
    for run in (work, torch.compile(work, backend="aot_eager", fullgraph=True)):
        x, w = normal(6, D).requires_grad_(), normal(D, D, seed=1).requires_grad_()
        out = run(x, w)
        flows = torch.autograd.grad(out.square().sum(), [x, w], allow_unused=True)
        found.append([out.detach(), *(flow for flow in flows if flow is not None)])
    assert torch.equal(found[0][0], found[1][0])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-6 * float(other.abs().max()))


@pytest.mark.parametrize("shape", [(0, 0, D), (2, 0, D), (2, 3, 0)])
def test_empty_tensors_have_empty_results(shape: tuple[int, int, int]) -> None:
    leaves = [torch.ones(shape).requires_grad_() for _ in range(3)]
    kept = torch.ones(shape[:2], dtype=torch.bool)
    pairs = Pairs(kept_indices(kept), kept_indices(kept), "others")
    outs = [
        padded_native(*leaves, pairs, C),
        feature_wise_attention(*leaves, pairs, C, "compiled"),
        feature_wise_pooling(leaves[0], leaves[1], kept, "compiled"),
        gate_mix([(leaves[0], leaves[1], leaves[2], leaves[2])]),
    ]
    for out in outs:
        gradients = torch.autograd.grad(out.sum(), leaves, allow_unused=True)
        assert not any(gradient is not None and gradient.any() for gradient in gradients)
