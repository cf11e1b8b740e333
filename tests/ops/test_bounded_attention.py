"""The choice between the exact attention and the one on a grid."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from rss_rl.ops.attention import feature_wise_attention
from rss_rl.ops.attention_pairs import PackedPairs
from rss_rl.ops.grid_scan import Plan
from rss_rl.ops.linear_attention import attention_within, is_worth_it
from rss_rl.ops.packing import Packed

C = 5.0


def attend(n: int, error: float | None, spread: float = 0.5) -> tuple[Tensor | None, list[Tensor]]:
    """The result and the inputs."""
    generator = torch.Generator().manual_seed(n)
    v, u, h = (torch.randn(n, 2, generator=generator) for _ in range(3))
    inputs = [spread * v, spread * u, h]
    return attention_within(error, *inputs, pairs_of(n, n), C), inputs


def pairs_of(heads: int, dependents: int) -> PackedPairs:
    """The first tokens of one text."""
    sides = (Packed.of([torch.ones(1, n, dtype=torch.bool)]) for n in (heads, dependents))
    return PackedPairs(*sides, "before")


@pytest.mark.parametrize(
    ("n", "error", "spread"),
    [(600, None, 0.5), (60, 0.01, 0.5), (130, 1e-6, 1.0), (600, 0.01, 99.0)],
    ids=["without an error", "few", "too few for so many nodes", "too wide a range"],
)
def test_none_where_the_exact_attention_is_to_be_computed(
    n: int, error: float | None, spread: float
) -> None:
    assert attend(n, error, spread)[0] is None


def test_the_grid_for_long_texts_to_the_error() -> None:
    found, inputs = attend(600, 1e-2)
    allowed = torch.ones(1, 600, 600, dtype=torch.bool).tril(-1)
    exact = feature_wise_attention(*(each[None] for each in inputs), allowed, C)[0]
    assert found is not None
    assert 0 < (found - exact).abs().max() <= 1e-2 * inputs[2].abs().max()


def test_few_heads_or_few_dependents_are_left_to_the_exact_attention() -> None:
    _, (v, u, h) = attend(600, None)
    assert attention_within(1e-2, v[:50], u, h, pairs_of(50, 600), C) is None
    assert attention_within(1e-2, v, u[:50], h[:50], pairs_of(600, 50), C) is None


def plan(nodes: int, dtype: torch.dtype = torch.float32) -> Plan:
    return Plan(nodes, max(32, nodes), dtype, torch.zeros(1, 1), torch.ones(1, 1))


def crossing(nodes: int, dtype: torch.dtype = torch.float32, speed: float = 1.0) -> int:
    """The shortest text that is worth it."""
    return next(n for n in range(10**5) if is_worth_it(plan(nodes, dtype), n, n, speed))


def test_worth_it_from_a_length_on_that_grows_with_nodes_precision_and_speed() -> None:
    assert 32 < crossing(8) < crossing(40) < 1024
    assert crossing(8) < crossing(8, torch.float64)
    assert crossing(8, speed=4.0) == pytest.approx(4 * crossing(8), abs=4)
    assert not is_worth_it(plan(12), 10, 10**6)  # sums over all for the sake of few heads
