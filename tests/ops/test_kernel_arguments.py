"""What a kernel is given is what it takes it for: strides, types, shapes and numbers of rows.

A kernel reads and writes whatever stands where it is told to. Each of these calls once answered
wrongly or went out of bounds, or would have.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from attending import C, padded_native
from torch import Tensor

from rss_rl.ops.attention import feature_wise_attention
from rss_rl.ops.attention_native import native_attention
from rss_rl.ops.attention_pairs import PackedPairs, Pairs
from rss_rl.ops.compilers import missing_compiler
from rss_rl.ops.dropping import LEVELS, Drop
from rss_rl.ops.linear_maps import gate_mix, linear_maps
from rss_rl.ops.masking import kept_indices
from rss_rl.ops.packing import Packed
from rss_rl.ops.pooling import feature_wise_pooling

pytestmark = pytest.mark.skipif(missing_compiler() is not None, reason=str(missing_compiler()))

M, N, D = 4, 3, 20


def normal(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


class TestStridesOfDimensionsOfSizeOne:
    """`contiguous` leaves them as they are, whatever they are."""


class TestPooling:
    scores, values = normal(M, N, D), normal(M, N, D, seed=1)
    kept = torch.tensor([[1, 1, 0], [1, 0, 1], [0, 0, 0], [1, 1, 1]], dtype=torch.bool)

    @pytest.mark.parametrize("backend", ["eager", "compiled"])
    @pytest.mark.parametrize(
        "kept",
        [
            kept.long(),
            kept.to(torch.uint8),
            torch.ones(M, N + 5, dtype=torch.bool),
            torch.ones(M, N - 1, dtype=torch.bool),
            torch.ones(1, N, dtype=torch.bool),
            torch.ones(M, 1, dtype=torch.bool),
            torch.ones(M * N, dtype=torch.bool),
        ],
        ids=lambda kept: f"{kept.dtype} {tuple(kept.shape)}",
    )
    def test_a_mask_that_does_not_fit_is_refused(self, kept: Tensor, backend: str) -> None:
        with pytest.raises(ValueError):
            feature_wise_pooling(self.scores, self.values, kept, backend)  # type: ignore[arg-type]


class TestDropout:
    values = normal(6, D)
    keys = torch.arange(6)

    @pytest.mark.parametrize(
        ("keys", "out"),
        [
            (keys.int(), None),
            (torch.arange(7), None),
            (torch.arange(5), None),
            (keys, torch.empty(5, D)),
            (keys, torch.empty(6, D + 1)),
            (keys, torch.empty(D, 6).T),
            (keys, torch.empty(6, D, dtype=torch.float64)),
            (keys, torch.empty(6, D, dtype=torch.int32)),
        ],
        ids=lambda t: "" if t is None else f"{t.dtype} {tuple(t.shape)}",
    )
    def test_what_does_not_fit_is_refused(self, keys: Tensor, out: Tensor | None) -> None:
        with pytest.raises(ValueError):
            Drop(keys, LEVELS // 2).applied(self.values, out)


def refused(work: Callable[[], object]) -> None:
    with pytest.raises(ValueError):
        work()


def test_linear_maps_take_no_keys_of_another_type() -> None:
    values, weight = normal(6, D), normal(5, D)
    refused(
        lambda: linear_maps(values, [weight], [None], drop=Drop(torch.arange(6).int(), 1 << 15))
    )


def test_attention_takes_one_type_and_positions_as_they_are() -> None:
    tokens = Packed.of([torch.ones(2, N, dtype=torch.bool)])
    rows = normal(2 * N, D)
    wrong = Packed(tokens.sequence, tokens.position.int(), tokens.starts)
    refused(lambda: native_attention(rows, rows, rows, PackedPairs(wrong, wrong, "before"), C))
    wrong = Packed(tokens.sequence, tokens.position, tokens.starts + 3)
    refused(lambda: native_attention(rows, rows, rows, PackedPairs(wrong, wrong, "before"), C))
    pairs = PackedPairs(tokens, tokens, "before")
    refused(lambda: native_attention(rows, rows.double(), rows, pairs, C))
    refused(lambda: native_attention(rows, rows[:3], rows, pairs, C))
    spread = torch.stack([tokens.position] * 2, 1)[:, 0]
    view = Packed(tokens.sequence, spread, tokens.starts)
    assert torch.equal(
        native_attention(rows, rows, rows, PackedPairs(view, view, "before"), C),
        native_attention(rows, rows, rows, pairs, C),
    )


@pytest.mark.parametrize("shape", [(0, 0, D), (M, 0, D), (M, N, 0)])
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
