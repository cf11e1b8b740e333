"""Products with room behind their rows, and gradients of weights, against plain ones."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rss_rl.ops.matmul import empty_rows, matmul, weight_gradient

BFLOAT16 = torch.bfloat16


@given(
    rows=st.one_of(st.integers(0, 150), st.integers(500, 600)),
    columns=st.one_of(st.integers(1, 40), st.sampled_from([50, 62, 100, 200, 300, 600])),
    outputs=st.sampled_from([3, 17, 100, 300, 600]),
    dtype=st.sampled_from([BFLOAT16, BFLOAT16, torch.float32, torch.float64]),
)
def test_what_stands_around_the_rows_changes_nothing(
    rows: int, columns: int, outputs: int, dtype: torch.dtype
) -> None:
    generator = torch.Generator().manual_seed(rows)
    values = torch.randn(rows, columns, generator=generator)
    right = torch.randn(columns, outputs, generator=generator).to(dtype)
    for part in range(4):
        wide = empty_rows(rows, (3 if part < 3 else 1) * columns, dtype)
        assert wide.is_contiguous()
        wide.fill_(torch.nan)
        left = wide.chunk(3, 1)[part] if part < 3 else wide
        assert left.shape == (rows, columns)
        left.copy_(values)
        expected = left.double() @ right.double()
        found = matmul(left, right)
        assert (found.dtype, found.shape) == (dtype, expected.shape)
        tolerance = 0.02 * columns**0.5 if dtype == BFLOAT16 else 1e-4
        torch.testing.assert_close(found.double(), expected, rtol=tolerance, atol=tolerance)


def test_products_are_of_few_numbers_of_rows() -> None:
    counts = {
        len(empty_rows(rows, 1, BFLOAT16).untyped_storage()) // 2 for rows in range(512, 1025)
    }
    assert len(counts) == 17
    assert max(counts) == 1024
    for rows in range(1, 2000):
        room = len(empty_rows(rows, 1, BFLOAT16).untyped_storage()) // 2
        assert rows <= room <= max(rows + 8, 1.07 * rows)


def test_autocast_does_not_change_the_type() -> None:
    left, right = torch.randn(3, 4), torch.randn(4, 2)
    with torch.autocast("cpu", torch.bfloat16):
        found = matmul(left, right)
    assert torch.equal(found, left @ right)


@pytest.mark.parametrize("rows", [0, 1, 70, 77, 525])
@pytest.mark.parametrize("features", [5, 100])
def test_the_gradient_of_weights(rows: int, features: int) -> None:
    generator = torch.Generator().manual_seed(0)
    wide = empty_rows(rows, features + 4, BFLOAT16).fill_(torch.nan)
    flow = wide[:, 2:-2]  # a part of longer rows
    flow.copy_(torch.randn(rows, features, generator=generator))
    given_ = empty_rows(rows, 5, BFLOAT16).copy_(torch.randn(rows, 5, generator=generator))
    exact = flow.double().T @ given_.double()
    found = weight_gradient(flow, given_, torch.float32)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found.double(), exact, rtol=2**-7, atol=10 * 2**-7)
    for dtype in (torch.float32, torch.float64):
        some = flow.to(dtype), given_.to(dtype)
        torch.testing.assert_close(
            weight_gradient(*some, dtype).double(), exact, rtol=1e-5, atol=1e-4
        )
