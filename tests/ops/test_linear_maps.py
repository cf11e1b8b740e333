"""Linear maps and the gate by kernels, against the formulas in float64."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from rss_rl.ops.linear_maps import LEVELS, Drop, gate_mix, linear_maps
from rss_rl.ops.native import missing_compiler

pytestmark = pytest.mark.skipif(missing_compiler() is not None, reason=str(missing_compiler()))

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "none": lambda values: values,
    "relu": F.relu,
    "elu": F.elu,
}


def drawn(
    *shapes: tuple[int, ...], seed: int = 0, dtype: torch.dtype = torch.float32
) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=generator).to(dtype).requires_grad_() for shape in shapes]


def drop_of(shape: tuple[int, ...], seed: int) -> Drop:
    generator = torch.Generator().manual_seed(seed)
    keys = torch.randint(-(2**62), 2**62, shape, generator=generator)
    return Drop(keys, round(0.3 * LEVELS))


def by_formula(
    values: Tensor, weights: list[Tensor], biases: list[Tensor], name: str, mask: Tensor
) -> list[Tensor]:
    return [
        ACTIVATIONS[name](F.linear(values * mask, weight, bias))
        for weight, bias in zip(weights, biases, strict=True)
    ]


def gradients(outs: tuple[Tensor, ...] | list[Tensor], leaves: list[Tensor]) -> list[Tensor]:
    """Of a sum in which every output has a factor of its own at each place."""
    factors = torch.linspace(0.5, 2.0, outs[0].numel()).view(outs[0].shape).to(outs[0].dtype)
    total = torch.stack([(k + 1) * (factors * out).sum() for k, out in enumerate(outs)]).sum()
    return list(torch.autograd.grad(total, leaves))


@given(
    shape=st.sampled_from([(1,), (3, 5), (2, 63), (0, 4), (130,)]),
    inputs=st.sampled_from([1, 16, 30]),
    outputs=st.sampled_from([1, 15, 16, 17, 40]),
    count=st.integers(1, 3),
    name=st.sampled_from(list(ACTIVATIONS)),
    dropped=st.booleans(),
    seed=st.integers(0, 10**6),
)
def test_values_and_gradients_are_those_of_the_formula(
    shape: tuple[int, ...],
    inputs: int,
    outputs: int,
    count: int,
    name: str,
    dropped: bool,
    seed: int,
) -> None:
    shapes = [(*shape, inputs)] + [(outputs, inputs)] * count + [(outputs,)] * count
    leaves = drawn(*shapes, seed=seed)
    drop = drop_of(shape, seed) if dropped else None
    outs = linear_maps(
        leaves[0], leaves[1 : 1 + count], leaves[1 + count :], activation=name, drop=drop
    )
    found = [*outs, *gradients(outs, leaves)]

    mask = torch.ones(*shape, inputs, dtype=torch.float64)
    if drop is not None:
        mask = drop.applied(torch.ones(*shape, inputs)).double()
    exact = [leaf.detach().double().requires_grad_() for leaf in leaves]
    expected = by_formula(exact[0], exact[1 : 1 + count], exact[1 + count :], name, mask)
    for one, other in zip(found, [*expected, *gradients(expected, exact)], strict=True):
        assert one.shape == other.shape
        largest = float(other.detach().abs().max()) if other.numel() else 0.0
        torch.testing.assert_close(one.double(), other, rtol=0, atol=5e-6 * max(1.0, largest))


def test_under_autocast_only_what_is_multiplied_is_rounded() -> None:
    values, *weights = drawn((70, 33), (20, 33), (20, 33))
    biases = drawn((20,), (20,), seed=1)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        outs = linear_maps(values, weights, biases, activation="elu")
    assert {out.dtype for out in outs} == {torch.float32}
    found = gradients(outs, [values, *weights, *biases])

    rounded = values.detach().bfloat16()
    flows = []
    for k in range(2):
        product = rounded @ weights[k].detach().bfloat16().T
        exact = F.elu(product.double() + biases[k].detach().double())
        torch.testing.assert_close(outs[k].detach().double(), exact, rtol=0, atol=1e-6)
        factors = torch.linspace(0.5, 2.0, exact.numel(), dtype=torch.float64).view(exact.shape)
        flows.append((k + 1) * factors * torch.where(exact > 0, 1.0, exact + 1.0))
        torch.testing.assert_close(found[3 + k].double(), flows[k].sum(0), rtol=1e-5, atol=1e-5)
    by_values = sum(
        flow.bfloat16().double() @ weight.detach().bfloat16().double()
        for flow, weight in zip(flows, weights, strict=True)
    )
    torch.testing.assert_close(found[0].double(), by_values, rtol=2**-8, atol=1e-3)
    for k in range(2):
        by_weight = flows[k].bfloat16().double().T @ rounded.double()
        torch.testing.assert_close(found[1 + k].double(), by_weight, rtol=2**-8, atol=2e-3)


@given(seed=st.integers(0, 10**6), spread=st.sampled_from([1.0, 30.0, 1e4]))
def test_the_gate_is_that_of_the_formula(seed: int, spread: float) -> None:
    leaves = drawn(*[(5, 37)] * 8, seed=seed)
    with torch.no_grad():
        leaves[2] *= spread
    out = gate_mix([leaves[:4], leaves[4:]])  # type: ignore[list-item]
    exact = [leaf.detach().double().requires_grad_() for leaf in leaves]
    sides = []
    for hidden, context, gate, more in (exact[:4], exact[4:]):
        share = torch.sigmoid(gate + more)
        sides.append(share * hidden + (1 - share) * context)
    expected = torch.cat(sides, -1)
    for one, other in zip(
        [out, *gradients([out], leaves)], [expected, *gradients([expected], exact)], strict=True
    ):
        torch.testing.assert_close(one.double(), other, rtol=0, atol=5e-6)
