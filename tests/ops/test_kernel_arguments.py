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

from rss_rl.ops.attention import feature_wise_attention, packed_attention
from rss_rl.ops.attention_native import native_attention
from rss_rl.ops.attention_pairs import PackedPairs, Pairs
from rss_rl.ops.compilers import missing_compiler
from rss_rl.ops.dropping import LEVELS, Drop
from rss_rl.ops.linear_maps import gate_mix, linear_maps
from rss_rl.ops.masking import kept_indices
from rss_rl.ops.packing import Packed
from rss_rl.ops.pooling import feature_wise_pooling, packed_pooling

pytestmark = pytest.mark.skipif(missing_compiler() is not None, reason=str(missing_compiler()))

M, N, D = 4, 3, 20


def normal(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


class TestStridesOfDimensionsOfSizeOne:
    """`contiguous` leaves them as they are, whatever they are."""

    @pytest.mark.parametrize("learns", [False, True])
    def test_attention_of_one_token_a_sequence(self, learns: bool) -> None:
        heads, dependents = (kept_indices(torch.ones(M, n, dtype=torch.bool)) for n in (1, N))
        pairs = Pairs(heads, dependents, "others")
        odd = normal(1, M, D).transpose(0, 1)
        assert odd.is_contiguous()
        assert odd.stride() == (D, M * D, 1)
        found = []
        for head_scores in (odd, odd.clone(memory_format=torch.contiguous_format)):
            inputs = [head_scores, normal(M, N, D, seed=1), normal(M, N, D, seed=2)]
            inputs = [tensor.detach().requires_grad_(learns) for tensor in inputs]
            context = feature_wise_attention(*inputs, pairs, C, "compiled")
            flow = odd.expand(M, 1, D)
            found.append([context, *(torch.autograd.grad(context, inputs, flow) if learns else ())])
        for one, other in zip(*found, strict=True):
            assert torch.equal(one, other)

    def test_a_single_row(self) -> None:
        """Of one token, whose row may be said to be any number of floats long."""
        tokens = Packed.of([torch.ones(1, 1, dtype=torch.bool)])
        pairs = PackedPairs(tokens, tokens, "others")
        odd = normal(D, 7)[:, :1].T  # [1, D], not contiguous
        row = normal(1, D).as_strided((1, D), (999, 1))  # contiguous
        for values in (odd, row):
            plain = values.clone(memory_format=torch.contiguous_format)
            for compute in (
                lambda x: packed_attention(x, x, x, pairs, C),
                lambda x: packed_pooling(x, x, tokens),
                lambda x: gate_mix([(x, x, x, x)] * 2),
                lambda x: linear_maps(x, [normal(5, D)] * 2, [None, normal(5)])[1],
            ):
                leaves = [plain.requires_grad_(), values.detach().requires_grad_()]
                outs = [compute(leaf) for leaf in leaves]
                assert torch.equal(*outs)
                flows = [torch.ones_like(outs[0]), torch.ones(1).expand(outs[0].shape)]
                found = [
                    torch.autograd.grad(out, leaf, flow)[0]
                    for out, leaf, flow in zip(outs, leaves, flows, strict=True)
                ]
                assert torch.equal(*found)


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

    def test_a_mask_may_be_a_view(self) -> None:
        wide = torch.ones(1, N, dtype=torch.bool).expand(M, N)
        every = torch.ones(M, N, dtype=torch.bool)
        found, plain = (
            feature_wise_pooling(self.scores, self.values, kept, "compiled")
            for kept in (wide, every)
        )
        assert torch.equal(found, plain)

    def test_rows_of_sequences_are_those_of_the_tokens(self) -> None:
        rows = normal(5, D)
        for starts in ([0, 2, 9], [0, 2, 4], [1, 2, 5], [0, 7, 5], [0, -3, 5]):
            sequence, position = torch.tensor([0, 0, 1, 1, 1]), torch.tensor([0, 1, 0, 1, 2])
            with pytest.raises(ValueError):
                packed_pooling(rows, rows, Packed(sequence, position, torch.tensor(starts)))
        starts32 = torch.tensor([0, 2, 5], dtype=torch.int32)
        with pytest.raises(ValueError):
            packed_pooling(rows, rows, Packed(sequence, position, starts32))


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

    def test_keys_may_be_a_view(self) -> None:
        spread = torch.stack([self.keys, self.keys], 1)[:, 0]
        assert torch.equal(
            Drop(spread, LEVELS // 2).applied(self.values),
            Drop(self.keys, LEVELS // 2).applied(self.values),
        )


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


def test_numbers_of_the_other_sign_are_read_with_theirs() -> None:
    """So is the imaginary part of a conjugate marked: a view, with a note to negate it."""
    values = torch._neg_view(normal(6, D))
    assert values.is_neg()
    assert values.is_contiguous()
    plain = values.resolve_neg()
    drop = Drop(torch.arange(6), LEVELS // 2)
    assert torch.equal(drop.applied(values), drop.applied(plain))
    assert torch.equal(gate_mix([(values,) * 4]), gate_mix([(plain,) * 4]))
    kept = torch.ones(1, 6, dtype=torch.bool)
    found, wanted = (
        feature_wise_pooling(v[None], v[None], kept, "compiled") for v in (values, plain)
    )
    assert torch.equal(found, wanted)
