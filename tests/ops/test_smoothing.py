"""Sums of bumps against a loop over pairs of tokens."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from rss_rl.policies.smooth import REACH, bumps


def slow(heights: Tensor, widths: Tensor, largest: float, part: Tensor | None = None) -> Tensor:
    """The formula of the module, one pair of tokens at a time."""
    out = torch.zeros_like(heights)
    reach = math.ceil(REACH * largest)
    for b, r, i in torch.cartesian_prod(*(torch.arange(n) for n in heights.shape)).tolist():
        for j in range(max(0, i - reach), min(heights.shape[-1], i + reach + 1)):
            if part is not None and part[b, i] != part[b, j]:
                continue
            width = float(widths[b, r, j])
            bell = math.exp(-(((i - j) / width) ** 2) / 2)
            out[b, r, i] += heights[b, r, j] * bell / math.sqrt(width * math.sqrt(math.pi))
    return out


def given_bumps(tokens: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    heights = torch.randn(2, 2, tokens, generator=generator, dtype=torch.float64)
    widths = 0.5 + 2.5 * torch.rand(2, 2, tokens, generator=generator, dtype=torch.float64)
    return heights, widths


@given(
    tokens=st.integers(0, 20),
    seed=st.integers(0, 100),
    largest=st.sampled_from([3.0, 4.5]),
    parts=st.integers(0, 4),
)
def test_the_sum(tokens: int, seed: int, largest: float, parts: int) -> None:
    if tokens:
        heights, widths = given_bumps(tokens, seed)
        drawn = torch.Generator().manual_seed(seed)
        part = torch.randint(parts, (2, tokens), generator=drawn).sort().values if parts else None
        found = bumps(heights, widths, largest, part)
        torch.testing.assert_close(found, slow(heights, widths, largest, part))
    else:
        empty = torch.zeros(2, 1, 0)
        assert bumps(empty, empty, largest).shape == empty.shape


@pytest.mark.parametrize("width", [1.0, 4.0, 9.0])
def test_a_bump_has_the_energy_of_its_height(width: float) -> None:
    heights = torch.zeros(1, 1, 101, dtype=torch.float64)
    heights[..., 50] = 3.0
    found = bumps(heights, torch.full_like(heights, width), 10.0)
    assert float(found.square().sum()) == pytest.approx(9.0, rel=1e-3)
