"""Triton's kernels: on a CUDA device, and interpreted by NumPy where there is none.

Triton reads whether to interpret when it is imported, so the interpreter has a process of its own.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from attending import C, inputs_of, outcome, pairs_of, reference, single
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from rss_rl.ops.attention import feature_wise_attention
from rss_rl.ops.masking import Gathered
from rss_rl.ops.packing import Order, Pairs

pytest.importorskip("triton", reason="no package 'triton'")
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
DEVICE = "cpu" if INTERPRETED else "cuda"
TOLERANCE = 5e-6
on_device = pytest.mark.skipif(
    not INTERPRETED and not torch.cuda.is_available(),
    reason="no CUDA device (test_the_interpreter runs it in NumPy)",
)


@pytest.mark.skipif(INTERPRETED, reason="it is this process")
@pytest.mark.timeout(600)
def test_the_interpreter() -> None:
    """All tests of this file that a device would run."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    command += ["-m", "cuda", "-k", "not device"]
    process = subprocess.run(
        [*command, str(Path(__file__).resolve())],
        env=os.environ | {"TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
    )
    assert process.returncode == 0, process.stdout + process.stderr
    assert "passed" in process.stdout
    assert "skipped" not in process.stdout


def attend(pairs: Pairs, *inputs: Tensor) -> Tensor:
    from rss_rl.ops.attention_triton import triton_attention

    return triton_attention(*inputs, pairs, C)


def moved(pairs: Pairs) -> Pairs:
    sides = [
        Gathered(t.index.to(DEVICE), t.kept.to(DEVICE)) for t in (pairs.heads, pairs.dependents)
    ]
    return Pairs(sides[0], sides[1], pairs.order)


def found_by(pairs: Pairs, inputs: list[Tensor]) -> list[Tensor]:
    """Context and gradients, of float32 on the device."""
    there, given = moved(pairs), [t.detach().to(DEVICE).requires_grad_() for t in inputs]
    found = outcome(lambda *tensors: attend(there, *tensors), given)
    with torch.inference_mode():  # another kernel makes the context alone
        assert torch.equal(attend(there, *(t.detach().clone() for t in given)), found[0])
    return [tensor.cpu() for tensor in found]


def assert_near(found: list[Tensor], wanted: list[Tensor]) -> None:
    """Context and gradients by head, by dependent, by value."""
    assert [tensor.dtype for tensor in found] == [torch.float32] * 4
    # By head sums cancel, in the eager form as well.
    for one, other, times in zip(found, wanted, (1, 2, 1, 1), strict=True):
        largest = float(other.abs().max())
        allowed = times * TOLERANCE * largest + 1e-30
        torch.testing.assert_close(one.double(), other, rtol=0, atol=allowed)


@pytest.mark.cuda
@on_device
@pytest.mark.parametrize(
    ("m", "n", "d", "aside", "order"),
    [
        *((2, 12, 40, False, "before"), (2, 19, 70, True, "after")),  # with gaps: several tiles
        *((2, 17, 40, True, "after"), (2, 1, 3, False, "before")),
    ],
)
def test_values_and_gradients_are_those_of_the_formula(
    m: int, n: int, d: int, aside: bool, order: Order
) -> None:
    pairs = pairs_of(m, n, 0.6, order, aside=aside)
    inputs = single(inputs_of(pairs, d, spread=2.0))
    assert_near(found_by(pairs, inputs), reference(inputs, pairs))


@pytest.mark.cuda
@on_device
@pytest.mark.parametrize("opposite", [False, True], ids=["same sign", "opposite signs"])
@pytest.mark.parametrize("size", [16.0, 1e4])
def test_extreme_scores_are_exact_too(size: float, opposite: bool) -> None:
    pairs = pairs_of(3, 6, 1.0, "before")
    inputs = inputs_of(pairs, 24)
    with torch.no_grad():
        inputs[0][1:] += size
        inputs[1][1:] += -size if opposite else size
    given = single(inputs)
    assert_near(found_by(pairs, given), reference(given, pairs))


@pytest.mark.cuda
@on_device
def test_a_row_does_not_depend_on_the_rest_of_the_batch() -> None:
    pairs = pairs_of(4, 20, 0.7, "after")
    inputs = inputs_of(pairs, 40)
    with torch.no_grad():
        inputs[0][3] += 30.0  # one sequence is out of the quotients' range
    given = single(inputs)
    together = found_by(pairs, given)
    longest = int(pairs.heads.kept[1:3].sum(1).max()), int(pairs.dependents.kept[1:3].sum(1).max())
    assert min(longest) < 20
    sides = [
        Gathered(side.index[1:3, :n], side.kept[1:3, :n])
        for side, n in zip((pairs.heads, pairs.dependents), longest, strict=True)
    ]
    widths = longest[0], longest[1], longest[1]
    parts = [t.detach()[1:3, :n] for t, n in zip(given, widths, strict=True)]
    alone = found_by(Pairs(sides[0], sides[1], "after"), parts)
    for one, other, n in zip(alone, together, (longest[0], *widths), strict=True):
        assert torch.equal(one, other[1:3, :n])


class Largest(TorchDispatchMode):
    """Bytes of the largest tensor that torch makes."""

    size = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        if isinstance(made, Tensor):
            self.size = max(self.size, made.nbytes)
        return made


@pytest.mark.cuda
@on_device
def test_no_tensor_of_all_pairs_is_made() -> None:
    pairs = pairs_of(2, 40, 1.0, "before", aside=True)
    inputs = single(inputs_of(pairs, 6))
    with Largest() as largest:
        found_by(pairs, inputs)
    assert largest.size == 2 * 40 * 6 * 4


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_a_device_is_asked_for_no_tensor_of_all_pairs() -> None:
    pairs = moved(pairs_of(2, 2048, 1.0, "before", aside=True))
    given = [t.detach().cuda().requires_grad_() for t in single(inputs_of(pairs, 300))]
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    outcome(lambda *tensors: feature_wise_attention(*tensors, pairs, C, "compiled"), given)
    one = 2 * 2048 * 300 * 4
    assert torch.cuda.max_memory_allocated() - before < 16 * one  # all pairs are 2048


@pytest.mark.skipif(INTERPRETED, reason="nothing is compiled in this process")
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", ["forward_kernel", "backward_kernel", "prepare_kernel"])
def test_kernels_compile_without_a_device(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from rss_rl.ops import attention_triton_kernels as kernels

    kernel = getattr(kernels, name)
    constants = {"SCALE": C, "ORDER": "before", "TRAIN": True}
    types = {"heads": "*i32", "dependents": "*i32", "far": "*i32", "bound": "fp32"}
    types |= dict.fromkeys(kernels._SIZES, "i32") | dict.fromkeys(constants, "constexpr")
    signature = {argument: types.get(argument, "*fp32") for argument in kernel.arg_names}
    given = {key: value for key, value in constants.items() if key in signature}
    source = ASTSource(kernel, signature, given)
    made = triton.compile(source, target=GPUTarget("cuda", 90, 32)).asm
    assert len(made["cubin"]) > 0
    assert re.search(r"\b(atom|red)\.", made["ptx"]) is None  # sums in no order
    assert ("ex2.approx.ftz.f32" in made["ptx"]) == (name != "prepare_kernel")
