"""Attention by the kernels for a CPU in float32, through the function that chooses."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from attending import C, inputs_of, outcome, pairs_of, reference, single
from torch import Tensor

from rss_rl.models.directional import AttentionSettings, DirectionalAttention
from rss_rl.ops import attention as module
from rss_rl.ops.attention import feature_wise_attention
from rss_rl.ops.gated import gated_attention
from rss_rl.ops.native import missing_compiler
from rss_rl.ops.packing import Order, Pairs

pytestmark = pytest.mark.skipif(missing_compiler() is not None, reason=str(missing_compiler()))
TOLERANCE = 5e-6


def compiled(pairs: Pairs, inputs: list[Tensor]) -> list[Tensor]:
    return outcome(lambda *given: feature_wise_attention(*given, pairs, C, "compiled"), inputs)


def assert_near(found: list[Tensor], wanted: list[Tensor]) -> None:
    for one, other in zip(found, wanted, strict=True):
        assert one.dtype == torch.float32
        largest = float(other.abs().max()) if other.numel() else 0.0
        torch.testing.assert_close(one.double(), other, rtol=0, atol=TOLERANCE * largest + 1e-30)


@pytest.fixture
def no_eager(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("went to eager")

    monkeypatch.setattr(module._Attention, "apply", refuse)


SIZES = [
    ("before", 7, 12, 40, 0.6, 1.0),
    ("after", 7, 12, 40, 0.6, 3.0),
    ("after", 7, 12, 40, 0.6, 8.0),
    ("before", 2, 1, 33, 1.0, 1.0),
    ("after", 9, 20, 300, 1.0, 1.0),
    ("before", 3, 9, 17, 0.1, 1.0),
]


@pytest.mark.parametrize(("order", "m", "n", "d", "share", "spread"), SIZES)
def test_single_precision_is_near_the_formula(
    order: Order, m: int, n: int, d: int, share: float, spread: float
) -> None:
    pairs = pairs_of(m, n, share, order)
    inputs = single(inputs_of(pairs, d, spread=spread))
    wanted = reference(inputs, pairs)
    assert_near(compiled(pairs, inputs), wanted)
    with torch.inference_mode():
        copies = [tensor.clone() for tensor in inputs]
        alone = feature_wise_attention(*copies, pairs, C, "compiled")
        assert_near([alone.clone()], wanted[:1])


@pytest.mark.usefixtures("no_eager")
def test_a_row_does_not_depend_on_the_rest_of_the_batch() -> None:
    pairs = pairs_of(30, 20, 0.7, "before")
    inputs = single(inputs_of(pairs, 64))
    together = compiled(pairs, inputs)
    for some in (slice(0, 1), slice(3, 8)):
        sides = [
            type(side)(side.index[some], side.kept[some])
            for side in (pairs.heads, pairs.dependents)
        ]
        cut = Pairs(sides[0], sides[1], "before")
        parts = [tensor.detach()[some].requires_grad_() for tensor in inputs]
        for one, other in zip(compiled(cut, parts), together, strict=True):
            assert torch.equal(one, other[some])


@pytest.mark.parametrize("opposite", [False, True], ids=["same sign", "opposite signs"])
@pytest.mark.parametrize("size", [39.0, 41.0, 1e4])
def test_extreme_scores_are_exact_too(size: float, opposite: bool) -> None:
    pairs = pairs_of(3, 6, 1.0, "before")
    inputs = inputs_of(pairs, 24)
    with torch.no_grad():
        inputs[0] += size
        inputs[1] += -size if opposite else size
    given = single(inputs)
    assert_near(compiled(pairs, given), reference(given, pairs))


def held_mb(field: str) -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{field}:")) / 1e3


def peak_mb(work: Callable[[], object]) -> float:
    """Megabytes that a call adds to what this process holds, at most; after one unmeasured call."""
    work()
    ctypes.CDLL(None).malloc_trim(0)  # what was freed but kept would be used again, uncounted
    Path("/proc/self/clear_refs").write_text("5")  # VmHWM begins anew at what is resident
    before = held_mb("VmRSS")
    work()
    return held_mb("VmHWM") - before


def test_no_tensor_of_all_pairs_is_in_memory() -> None:
    pairs = pairs_of(17, 96, 1.0, "before")
    inputs = single(inputs_of(pairs, 300))
    all_pairs = 17 * 96 * 96 * 300 * 4 / 1e6  # 188 MB
    assert peak_mb(lambda: compiled(pairs, inputs)) < all_pairs / 4


@pytest.mark.usefixtures("no_eager")
def test_gates_go_through_the_kernels_too() -> None:
    """A model that is to be compiled is so as well where it learns through gates."""
    pairs = pairs_of(3, 8, 1.0, "before")
    inputs = single(inputs_of(pairs, 16))
    gates = torch.linspace(0, 1, 24).view(3, 8).requires_grad_()
    found = gated_attention(*inputs, pairs, C, gates, "compiled")
    heads, dependents = (t.double() for t in inputs[:2])
    scores = C * torch.tanh((heads[:, :, None] + dependents[:, None]) / C)  # [M, J, I, D]
    weights = torch.exp(scores) * pairs.mask(slice(None), slice(None))[..., None]
    weights = weights * gates.double()[:, None, :, None]
    total = weights.sum(2, keepdim=True)
    wanted = (weights / torch.where(total > 0, total, 1.0) * inputs[2].double()[:, None]).sum(2)
    torch.testing.assert_close(found.double(), wanted, rtol=0, atol=1e-5)
    slopes = [torch.autograd.grad(t.square().sum(), gates)[0] for t in (found, wanted)]
    torch.testing.assert_close(*slopes, rtol=1e-3, atol=1e-3)
    settings = AttentionSettings("elu", 0.0, "compiled")
    direction = DirectionalAttention(16, 16, settings, forward=True)
    direction.gated_context(inputs[2], torch.ones(3, 8, dtype=torch.bool), gates)
