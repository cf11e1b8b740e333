"""Rows without padding: where they stand, and attention and pooling over them.

Legend: M sequences, N tokens, D features.
"""

from __future__ import annotations

import torch
from compiling import needs_compiler
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from rss_rl.ops.attention import feature_wise_attention, packed_attention
from rss_rl.ops.packing import Order, Packed, PackedPairs
from rss_rl.ops.pooling import feature_wise_pooling, packed_pooling

C = 5.0
ORDERS: tuple[Order, ...] = ("before", "after")


def masks(seed: int, share: float, *shapes: tuple[int, int]) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.rand(shape, generator=generator) < share for shape in shapes]


def leaves(seed: int, *sizes: tuple[int, ...], dtype: torch.dtype) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(size, generator=generator, dtype=dtype).requires_grad_() for size in sizes]


@given(seed=st.integers(0, 10**6), share=st.floats(0, 1), groups=st.integers(1, 3))
def test_rows_are_the_kept_tokens_in_order(seed: int, share: float, groups: int) -> None:
    kept = masks(seed, share, *[(3, 2 + group) for group in range(groups)])
    packed = Packed.of(kept)
    places = [
        (3 * g + m, n)
        for g, mask in enumerate(kept)
        for m, row in enumerate(mask.tolist())
        for n, is_kept in enumerate(row)
        if is_kept
    ]
    assert list(zip(packed.sequence.tolist(), packed.position.tolist(), strict=True)) == places
    counts = [sum(m == sequence for sequence, _ in places) for m in range(3 * groups)]
    assert packed.starts.tolist() == [sum(counts[:m]) for m in range(3 * groups + 1)]
    assert len(packed) == len(places)

    values = torch.arange(1.0, 2 * len(places) + 1).view(-1, 2)
    padded = packed.padded(values)
    assert padded.shape == (3 * groups, max(counts), 2)
    assert torch.equal(packed.unpadded(padded), values)
    assert int((padded != 0).sum()) == 2 * len(places)
    gathered = packed.gathered
    assert torch.equal(gathered.kept, padded[..., 0] != 0)
    assert torch.equal(packed.unpadded(gathered.index[..., None])[:, 0], packed.position)

    rows = torch.arange(0, len(places), 2)
    some = packed.chosen(rows)
    assert list(zip(some.sequence.tolist(), some.position.tolist(), strict=True)) == places[::2]
    assert some.starts.tolist() == [
        sum(sequence < m for sequence, _ in places[::2]) for m in range(3 * groups + 1)
    ]


def pairs_of(seed: int, share: float, order: Order) -> PackedPairs:
    """Of four sequences of up to six tokens, one of them empty; heads and dependents differ."""
    (kept,) = masks(seed, share, (4, 6))
    kept[2] = False
    packed = Packed.of([kept])
    sides = [
        packed.chosen(mask.nonzero()[:, 0])
        for mask in masks(seed + 1, 0.6, (1, len(packed)), (1, len(packed)))
        for mask in mask
    ]
    return PackedPairs(*sides, order)


@needs_compiler
@given(
    seed=st.integers(0, 10**6),
    share=st.sampled_from([0.3, 0.9, 1.0]),
    order=st.sampled_from(ORDERS),
    large=st.booleans(),
)
def test_packed_attention_is_that_of_padded_sequences(
    seed: int, share: float, order: Order, large: bool
) -> None:
    pairs = pairs_of(seed, share, order)
    heads, dependents = len(pairs.heads), len(pairs.dependents)
    given_ = leaves(seed, (heads, 7), (dependents, 7), (dependents, 7), dtype=torch.float32)
    if large and heads:  # the kernels leave them to the exact form
        with torch.no_grad():
            given_[0][0] = 1e4
    found = packed_attention(*given_, pairs, C)
    exact = [leaf.detach().double().requires_grad_() for leaf in given_]
    whole = pairs.padded()
    padded = [pairs.heads.padded(exact[0]), *map(pairs.dependents.padded, exact[1:])]
    expected = pairs.heads.unpadded(feature_wise_attention(*padded, whole, C))
    flow = torch.randn(expected.shape, dtype=torch.float64)
    gradients = torch.autograd.grad(found, given_, flow.float())
    expected_gradients = torch.autograd.grad(expected, exact, flow)
    for one, other in zip([found, *gradients], [expected, *expected_gradients], strict=True):
        torch.testing.assert_close(one.double(), other, rtol=2e-5, atol=5e-6)


@needs_compiler
@given(seed=st.integers(0, 10**6), share=st.sampled_from([0.0, 0.4, 1.0]), large=st.booleans())
def test_packed_pooling_is_that_of_padded_sequences(seed: int, share: float, large: bool) -> None:
    tokens = Packed.of(masks(seed, share, (3, 5), (3, 2)))
    given_ = leaves(seed, (len(tokens), 18), (len(tokens), 18), dtype=torch.float32)
    if large and len(tokens):
        with torch.no_grad():
            given_[0][0] = torch.inf
            given_[0][0, 1:] = -40.0
    found = packed_pooling(*given_, tokens)
    assert found.shape == (6, 18)
    exact = [leaf.detach().double().requires_grad_() for leaf in given_]
    padded = [tokens.padded(leaf) for leaf in exact]
    expected = feature_wise_pooling(*padded, tokens.gathered.kept)
    torch.testing.assert_close(found.double(), expected, rtol=0, atol=1e-5, equal_nan=True)
    if not large:
        flow = torch.randn(6, 18, dtype=torch.float64)
        for one, other in zip(
            torch.autograd.grad(found, given_, flow.float()),
            torch.autograd.grad(expected, exact, flow),
            strict=True,
        ):
            torch.testing.assert_close(one.double(), other, rtol=0, atol=1e-5)
