"""The kernels for a CPU in float64, held against the formula to its last digits."""

from __future__ import annotations

import pytest
import torch
from attending import C, inputs_of, outcome, padded_native, pairs_of, reference
from hypothesis import given
from hypothesis import strategies as st

from rss_rl.ops.native import OutOfRange, missing_compiler
from rss_rl.ops.packing import Order

pytestmark = pytest.mark.skipif(missing_compiler() is not None, reason=str(missing_compiler()))
ORDERS: tuple[Order, ...] = ("before", "after")


@given(
    m=st.integers(1, 6),
    n=st.integers(1, 12),
    d=st.sampled_from([1, 2, 8, 9, 15, 16, 17, 33, 64, 65, 300]),
    share=st.sampled_from([0.1, 0.5, 1.0]),
    order=st.sampled_from(ORDERS),
    aside=st.booleans(),
    seed=st.integers(0, 10**6),
)
def test_values_and_gradients_are_those_of_the_formula(
    m: int, n: int, d: int, share: float, order: Order, aside: bool, seed: int
) -> None:
    pairs = pairs_of(m + 1, n, share, order, seed=seed, aside=aside)
    inputs = [t.detach() for t in inputs_of(pairs, d, seed=seed)]
    views = [torch.nn.functional.pad(t, (3, 2), value=7.0)[..., 3:-2] for t in inputs]
    leaves = [view.requires_grad_() for view in views]
    found = outcome(lambda *given: padded_native(*given, pairs, C), leaves)
    for one, other in zip(found, reference(inputs, pairs), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-12)
    with torch.no_grad():
        assert torch.equal(padded_native(*views, pairs, C), found[0])


@pytest.mark.parametrize("score", [float("nan"), float("inf"), 40.1, -40.1])
@pytest.mark.parametrize("side", [0, 1])
def test_what_is_out_of_range_is_reported(side: int, score: float) -> None:
    pairs = pairs_of(3, 5, 1.0, "before")
    inputs = [t.detach() for t in inputs_of(pairs, 20)]
    padded_native(*inputs, pairs, C)
    inputs[side][1, 2, 19] = score
    with pytest.raises(OutOfRange):
        padded_native(*inputs, pairs, C)
    with pytest.raises(OutOfRange):
        padded_native(*(t.requires_grad_() for t in inputs), pairs, C)


@pytest.mark.parametrize("threads", [2, 5])
def test_the_number_of_threads_does_not_matter(threads: int) -> None:
    pairs = pairs_of(9, 40, 0.9, "after")
    inputs = [t.detach().float().requires_grad_() for t in inputs_of(pairs, 100)]
    before = torch.get_num_threads()
    results = []
    for number in (1, threads):
        torch.set_num_threads(number)
        try:
            results.append(outcome(lambda *given: padded_native(*given, pairs, C), inputs))
        finally:
            torch.set_num_threads(before)
    for one, other in zip(*results, strict=True):
        assert torch.equal(one, other)
