"""Keyed dropout against a twin in whole numbers: masks belong to examples, not to batches."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from rss_rl.models import dropout as module
from rss_rl.models.dropout import Dropout, keyed_dropout, packed_rows, part_keys
from rss_rl.ops.native import missing_compiler
from rss_rl.ops.packing import Packed
from rss_rl.seeding import example_keys

RATE = 0.3


def keys_of(*rows: int, update: int = 0) -> Tensor:
    return torch.from_numpy(example_keys(0, "dropout", update, np.array(rows, dtype=np.int64)))


def masks(keys: Tensor, *shapes: tuple[int, ...], rate: float = RATE) -> list[Tensor]:
    """What is kept by dropout calls on values [M, *shape], one after another."""
    layer = Dropout(rate).train()
    with keyed_dropout(keys):
        return [layer(torch.ones(len(keys), *shape)) != 0 for shape in shapes]


def mix(state: int) -> int:
    """SplitMix64's output function on whole numbers."""
    state = (state ^ (state >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    state = (state ^ (state >> 27)) * 0x94D049BB133111EB % 2**64
    return state ^ (state >> 31)


@given(
    key=st.integers(-(2**63), 2**63 - 1),
    call=st.integers(0, 3),
    n=st.integers(1, 6),
    d=st.integers(1, 11),
    rate=st.floats(0.01, 0.99),
)
def test_masks_equal_the_slow_twin(key: int, call: int, n: int, d: int, rate: float) -> None:
    golden = 0x9E3779B97F4A7C15
    drawn = masks(torch.tensor([key]), *[(n, d)] * (call + 1), rate=rate)[call][0]
    for position, feature in itertools.product(range(n), range(d)):
        state = mix((key + (call + 1) * golden) % 2**64)
        state = mix((state + (position + 1) * golden) % 2**64)
        state = mix((state + (feature // 4 + 1) * golden) % 2**64)
        lane = (state >> 16 * (feature % 4)) & 0xFFFF
        signed = lane - 2**16 if lane >= 2**15 else lane
        assert bool(drawn[position, feature]) is (signed >= round(rate * 2**16) - 2**15)


@pytest.mark.skipif(missing_compiler() is not None, reason=str(missing_compiler()))
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@given(
    m=st.integers(1, 5),
    shape=st.lists(st.integers(1, 40), min_size=1, max_size=3),
    rate=st.floats(0.01, 0.99),
    seed=st.integers(0, 10**6),
)
def test_one_pass_gives_the_bits_of_many(
    dtype: torch.dtype, m: int, shape: list[int], rate: float, seed: int
) -> None:
    """So that machines with and without a compiler share a run."""
    generator = torch.Generator().manual_seed(seed)
    keys = torch.randint(-(2**62), 2**62, (m,), generator=generator)
    values = torch.randn(m, *shape, generator=generator, dtype=dtype)
    results = []
    for missing in (None, "no compiler"):
        leaf, layer = values.clone().requires_grad_(), Dropout(rate).train()
        layer.kernels = True
        with pytest.MonkeyPatch.context() as patch, keyed_dropout(keys):
            patch.setattr(module, "missing_compiler", lambda missing=missing: missing)
            dropped = layer(leaf)
        (gradient,) = torch.autograd.grad(dropped.square().sum(), leaf)
        results.append((dropped.detach(), gradient))
    for one, other in zip(*results, strict=True):
        assert torch.equal(one, other)


@given(key=st.integers(-(2**63), 2**63 - 1))
def test_devices_without_numpy_mix_alike(key: int) -> None:
    assert int(module._mix_on_device(torch.tensor([key]))) % 2**64 == mix(key % 2**64)


@given(key=st.integers(-(2**63), 2**63 - 1), number=st.integers(0, 40), calls=st.integers(0, 3))
def test_keys_of_parts_equal_the_slow_twin(key: int, number: int, calls: int) -> None:
    golden, layer = 0x9E3779B97F4A7C15, Dropout(RATE).train()
    with keyed_dropout(torch.tensor([7, key])):
        for _ in range(calls):
            layer(torch.ones(2, 3))
        found = part_keys(torch.tensor([0, 1]), torch.tensor([3, number]))
    assert found is not None
    state = mix((mix((key + (calls + 1) * golden) % 2**64) + (number + 1) * golden) % 2**64)
    assert int(found[1]) % 2**64 == state


@given(rows=st.lists(st.integers(0, 10**6), min_size=2, max_size=6, unique=True), data=st.data())
def test_alone_in_a_batch_and_in_a_shard_an_example_meets_one_mask(
    rows: list[int], data: st.DataObject
) -> None:
    whole = masks(keys_of(*rows), (7, 10), (5,))
    cut = data.draw(st.integers(1, len(rows) - 1))
    for shard in (slice(0, cut), slice(cut, None), slice(0, 1)):
        part = masks(keys_of(*rows[shard]), (4, 10), (5,))  # and less padding
        assert torch.equal(part[0], whole[0][shard, :4])
        assert torch.equal(part[1], whole[1][shard])


def test_gradient_is_the_mask() -> None:
    layer, values = Dropout(RATE).train(), torch.randn(3, 4, 6, dtype=torch.float64)
    values.requires_grad_()
    with keyed_dropout(keys_of(1, 2, 3)):
        out = layer(values)
    (gradient,) = torch.autograd.grad(out.sum(), values)
    kept = masks(keys_of(1, 2, 3), (4, 6))[0]
    scale = 2**16 / (2**16 - round(RATE * 2**16))
    torch.testing.assert_close(gradient, kept.double() * scale)
    torch.testing.assert_close(out, values * gradient)


def test_it_is_torchs_dropout_without_keys_and_nothing_in_evaluation() -> None:
    layer, values = Dropout(RATE), torch.randn(4, 5)
    torch.manual_seed(3)
    drawn = layer.train()(values)
    torch.manual_seed(3)
    assert torch.equal(drawn, torch.nn.functional.dropout(values, RATE))
    with keyed_dropout(keys_of(*range(4))):
        assert torch.equal(layer.eval()(values), values)
        assert torch.equal(Dropout(0.0).train()(values), values)


def test_rows_drop_what_their_tokens_would() -> None:
    layers = [Dropout(0.5).train() for _ in range(3)]
    kept = torch.tensor([[True, True, True], [False, False, False], [True, True, False]])
    packed, padded = Packed.of([kept]), torch.ones(3, 3, 6)
    heads = packed.chosen(torch.tensor([1, 4]))  # of which a sequence has fewer
    with keyed_dropout(keys_of(1, 2, 3)):
        expected = [layer(padded) for layer in layers]
    with keyed_dropout(keys_of(1, 2, 3)), packed_rows(packed):
        first = layers[0](torch.ones(5, 6))
        with packed_rows(heads):
            second = layers[1](torch.ones(2, 6))
        third = layers[2](torch.ones(5, 6))
        with pytest.raises(ValueError, match="rows"):
            layers[0](torch.ones(4, 6))
    assert torch.equal(first, expected[0][kept])
    assert torch.equal(second, expected[1][[0, 2], 0])
    assert torch.equal(third, expected[2][kept])
    with packed_rows(packed):  # without keys it changes nothing
        assert layers[0](torch.ones(7, 6)).shape == (7, 6)
