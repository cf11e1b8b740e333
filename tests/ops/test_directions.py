"""Both directions in one step against the same layers one by one, in double precision.

Legend: R tokens, E inputs, D features.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from compiling import needs_compiler
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from rss_rl.ops import directions, operators
from rss_rl.ops.attention import feature_wise_attention
from rss_rl.ops.directions import Direction, Weights, directional_attention
from rss_rl.ops.linear_maps import Drop, gate_mix
from rss_rl.ops.packing import Packed, Pairs

C, E, D = 5.0, 5, 7


def tokens_of(seed: int, share: float = 0.7, sequences: int = 4) -> Packed:
    generator = torch.Generator().manual_seed(seed)
    kept = torch.rand(sequences, 6, generator=generator) < share
    kept[1:2] = False
    return Packed.of([kept])


def drawn(
    seed: int, tokens: Packed, dtype: torch.dtype, spread: float = 0.6
) -> tuple[Tensor, list[Weights]]:
    generator = torch.Generator().manual_seed(seed)

    def leaf(*size: int) -> Tensor:
        return (spread * torch.randn(size, generator=generator, dtype=dtype)).requires_grad_()

    weights = [
        Weights(
            *(leaf(D, E), leaf(D), leaf(D, D), leaf(D, D), leaf(D), leaf(D, D), leaf(D, D), leaf(D))
        )
        for _ in range(2)
    ]
    return leaf(len(tokens), E), weights


def drops_of(tokens: Packed) -> list[Drop]:
    return [Drop(torch.arange(len(tokens)) * 7919 + start, 1 << 14) for start in (3, 99)]


def together(weights: list[Weights], drops: list[Drop] | list[None]) -> list[Direction]:
    return [
        Direction(weights[0], "before", drops[0]),
        Direction(weights[1], "after", drops[1]),
    ]


def by_layers(
    values: Tensor, given_: list[Direction], tokens: Packed, activation: str = "elu"
) -> Tensor:
    """The formulas of the module, on padded sequences and by torch."""
    outputs = []
    sigma: Any = getattr(torch.nn.functional, activation, lambda x: x)
    for weights, order, drop in given_:
        shown = values if drop is None else values * drop.applied(torch.ones_like(values))
        h = sigma(shown @ weights.hidden.T + weights.hidden_bias)
        v = h @ weights.head.T + weights.score_bias
        gathered = tokens.gathered
        padded = (tokens.padded(part) for part in (v, h @ weights.dependent.T, h))
        s = tokens.unpadded(feature_wise_attention(*padded, Pairs(gathered, gathered, order), C))
        logit = h @ weights.gate.T + s @ weights.gate_context.T + weights.gate_bias
        share = torch.sigmoid(logit)
        outputs.append(share * h + (1 - share) * s)
    return torch.cat(outputs, -1)


def all_of(values: Tensor, weights: list[Weights]) -> list[Tensor]:
    return [values, *weights[0], *weights[1]]


@needs_compiler
@given(
    seed=st.integers(0, 10**6),
    share=st.sampled_from([0.0, 0.6, 1.0]),
    activation=st.sampled_from(["elu", "relu", "none"]),
    dropped=st.booleans(),
)
def test_outputs_and_gradients_are_those_of_the_formulas(
    seed: int, share: float, activation: str, dropped: bool
) -> None:
    tokens = tokens_of(seed, share)
    values, weights = drawn(seed, tokens, torch.float64)
    given_ = together(weights, drops_of(tokens) if dropped else [None, None])
    found = directional_attention(values, given_, tokens, activation, C)
    expected = by_layers(values, given_, tokens, activation)
    assert found.shape == (len(tokens), 2 * D)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-10)
    flow = torch.linspace(-1, 1, found.numel(), dtype=torch.float64).view(found.shape)
    leaves = all_of(values, weights)
    for one, other in zip(
        torch.autograd.grad(found, leaves, flow),
        torch.autograd.grad(expected, leaves, flow),
        strict=True,
    ):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-9)


@needs_compiler
def test_under_autocast_only_what_is_multiplied_is_rounded() -> None:
    tokens = tokens_of(2, 0.9, 40)
    values, weights = drawn(2, tokens, torch.float32)
    given_ = together(weights, drops_of(tokens))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = directional_attention(values, given_, tokens, "elu", C)
        parts = [directions._parts(values, each, tokens, "elu", C) for each in given_]
        alone = gate_mix(parts)
    assert found.dtype == torch.float32
    # The same roundings in the same places: the layers one by one differ by summation alone.
    torch.testing.assert_close(found, alone, rtol=1e-5, atol=1e-5)
    expected = by_layers(values, given_, tokens)
    assert not torch.allclose(found, expected, rtol=0, atol=1e-5)
    torch.testing.assert_close(found, expected, rtol=0, atol=0.05)
    flow = torch.linspace(-1, 1, found.numel()).view(found.shape)
    leaves = all_of(values, weights)
    for one, other in zip(
        torch.autograd.grad(found, leaves, flow),
        torch.autograd.grad(expected, leaves, flow),
        strict=True,
    ):
        assert one.dtype == torch.float32
        assert (one - other).norm() < 0.02 * other.norm()


@needs_compiler
def test_bits_do_not_depend_on_the_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    tokens = tokens_of(5, 0.9, 60)
    values, weights = drawn(5, tokens, torch.float32)
    given_ = together(weights, drops_of(tokens))
    found = []
    for threads in (1, 3):
        monkeypatch.setattr(operators, "threads_for", lambda _, n=threads: n)
        out = directional_attention(values, given_, tokens, "elu", C)
        found.append([out, *torch.autograd.grad(out.square().sum(), all_of(values, weights))])
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))


@needs_compiler
def test_a_sequence_alone_is_what_it_is_in_a_batch() -> None:
    tokens = tokens_of(6, 0.9)
    values, weights = drawn(6, tokens, torch.float64)
    whole = directional_attention(values, together(weights, [None, None]), tokens, "elu", C)
    for number in range(len(tokens.starts) - 1):
        rows = (tokens.sequence == number).nonzero()[:, 0]
        own = tokens.chosen(rows)
        alone = directional_attention(values[rows], together(weights, [None, None]), own, "elu", C)
        torch.testing.assert_close(alone, whole[rows], rtol=0, atol=1e-12)


@needs_compiler
def test_what_learns_goes_through_the_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    tokens = tokens_of(9)
    values, weights = drawn(9, tokens, torch.float32)
    monkeypatch.setattr(directions, "_parts", None)
    found = directional_attention(values, together(weights, [None, None]), tokens, "elu", C)
    assert found.requires_grad
