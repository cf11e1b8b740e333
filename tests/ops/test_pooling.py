"""Feature-wise pooling: the kernel against torch's softmax, both against the formula elsewhere."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from rss_rl.ops.attention import KernelBackend
from rss_rl.ops.native import missing_compiler
from rss_rl.ops.packing import Packed
from rss_rl.ops.pooling import feature_wise_pooling, packed_pooling, packed_shared_pooling

pytestmark = pytest.mark.skipif(missing_compiler() is not None, reason=str(missing_compiler()))


def inputs_of(
    m: int, n: int, d: int, seed: int = 0, spread: float = 1.0
) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    scores, values = (torch.randn(m, n, d, generator=generator) for _ in range(2))
    return spread * scores, values, torch.rand(m, n, generator=generator) < 0.6


def outcome(
    given: tuple[Tensor, Tensor, Tensor],
    backend: KernelBackend,
    dtype: torch.dtype = torch.float32,
) -> list[Tensor]:
    """The means, and the gradients of their sum of squares by scores and by values."""
    leaves = [tensor.detach().to(dtype).requires_grad_() for tensor in given[:2]]
    pooled = feature_wise_pooling(*leaves, given[2], backend)
    return [pooled.detach(), *torch.autograd.grad(pooled.square().sum(), leaves)]


@given(
    m=st.integers(1, 5),
    n=st.integers(1, 9),
    d=st.sampled_from([1, 15, 16, 17, 63, 65, 300]),
    spread=st.sampled_from([1.0, 30.0, 1e4]),
    seed=st.integers(0, 10**6),
)
def test_values_and_gradients_are_those_of_the_softmax(
    m: int, n: int, d: int, spread: float, seed: int
) -> None:
    inputs = inputs_of(m, n, d, seed, spread)
    found = outcome(inputs, "compiled")
    for one, other in zip(found, outcome(inputs, "eager", torch.float64), strict=True):
        largest = float(other.abs().max())
        torch.testing.assert_close(one.double(), other, rtol=0, atol=5e-6 * max(1.0, largest))


def test_a_row_does_not_depend_on_the_rest_of_the_batch() -> None:
    inputs = inputs_of(8, 7, 100)
    alone = tuple(tensor[3:4] for tensor in inputs)
    whole = outcome(inputs, "compiled")
    for one, other in zip(outcome(alone, "compiled"), whole, strict=True):  # type: ignore[arg-type]
        assert torch.equal(one, other[3:4])
    longer = (*(torch.cat([t, torch.full_like(t, torch.nan)], 1) for t in inputs[:2]), inputs[2])
    padded = torch.cat([longer[2], torch.zeros_like(longer[2])], 1)
    again = outcome((longer[0], longer[1], padded), "compiled")
    assert torch.equal(again[0], whole[0])
    assert torch.equal(again[1][:, :7], whole[1])
    assert not again[1][:, 7:].any()


@pytest.mark.parametrize("learns", [True, False])
@pytest.mark.parametrize("backend", ["eager", "compiled"])
def test_shared_tokens_count_as_if_each_sequence_had_them(
    backend: KernelBackend, learns: bool
) -> None:
    scores, values, kept = inputs_of(3, 5, 70)
    tokens, common = Packed.of([kept]), (scores[kept], values[kept])
    cells = (torch.rand(2 * len(tokens)) < 0.4).nonzero()[:, 0]
    rows = torch.randn(2, len(cells), 70).requires_grad_(learns).unbind()
    found = packed_shared_pooling(rows, cells, tokens, 2, common, backend)  # type: ignore[arg-type]
    parts = zip(common, rows, strict=True)
    whole = [part.repeat(2, 1).index_put((cells,), row) for part, row in parts]
    assert torch.equal(found, packed_pooling(*whole, tokens.repeated(2), backend))
    assert found.requires_grad is learns


@pytest.mark.parametrize("columns", [1, 70])
def test_pooling_by_torch_is_that_of_padded_tokens(columns: int) -> None:
    scores, values, kept = inputs_of(3, 5, 70)
    scores, tokens = scores[..., :columns], Packed.of([kept])
    for backend in ("eager", "compiled"):
        found = packed_pooling(scores[kept], values[kept], tokens, backend)  # type: ignore[arg-type]
        expected = feature_wise_pooling(scores, values, kept)
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)
