"""Feature-wise attention on a CUDA device: beside its bound, in a training step, and its memory.

A pair and feature takes a reciprocal and a power of two in the forward pass, and again in the
backward pass, and a multiprocessor makes 16 of either a clock. `bound` is the time of these alone
over the allowed pairs, at the device's highest clock: a ratio of 0.8 is 80% of what is possible at
most.

Times are of the device, between two events around one call, after one that is not measured.
`attention.py` runs this where there is a device; it was written on a machine without one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from attention import SCALE, Work, step_of
from suite.records import Record, compared, limited
from torch import Tensor

from rss_rl.ops.attention import KernelBackend, feature_wise_attention
from rss_rl.ops.masking import kept_indices
from rss_rl.ops.packing import Pairs

_PER_CLOCK = 16
"""Special functions of a multiprocessor, compute capability 7.0 to 12.0 (CUDA's manual, 8.1)."""
_SPECIAL = {"forward": 2, "forward+backward": 4}


@dataclass(frozen=True)
class Device:
    """Where it runs and how fast that could be.

    units  multiprocessors
    clock  highest, in Hz
    """

    name: str
    units: int
    clock: float

    @classmethod
    def current(cls) -> Device:
        """The CUDA device."""
        from triton.runtime import driver  # only where there is one

        number = torch.cuda.current_device()
        found = driver.active.utils.get_device_properties(number)
        return cls("cuda", found["multiprocessor_count"], 1000.0 * found["sm_clock_rate"])

    def bound_ms(self, kind: str, pair_features: int) -> float:
        """Of all special functions, with nothing else to do."""
        return 1000 * _SPECIAL[kind] * pair_features / (self.units * _PER_CLOCK * self.clock)


def milliseconds(work: Work, repeats: int) -> list[float]:
    """Of each call, on the device."""
    found = []
    for repeat in range(repeats + 1):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        work()
        end.record()
        end.synchronize()
        if repeat:
            found.append(start.elapsed_time(end))
    return found


class Case:
    """Attention alone of `batch` sequences of `tokens`, all of them valid, towards earlier ones."""

    def __init__(self, device: str, batch: int, tokens: int, features: int) -> None:
        shape = batch, tokens, features
        self.given = [torch.randn(shape, device=device).requires_grad_() for _ in range(3)]
        everything = kept_indices(torch.ones(shape[:2], dtype=torch.bool, device=device))
        self.pairs = Pairs(everything, everything, "before")
        self.pair_features = batch * (tokens * (tokens - 1) // 2) * features

    def _forward(self, backend: KernelBackend) -> Tensor:
        return feature_wise_attention(*self.given, self.pairs, SCALE, backend)

    def works(self, backend: KernelBackend) -> dict[str, Work]:
        """One call of each kind."""

        def infer() -> None:
            with torch.no_grad():
                self._forward(backend)

        def train() -> None:
            torch.autograd.grad(self._forward(backend).sum(), self.given)

        return {"forward": infer, "forward+backward": train}


def kernel_records(
    device: Device, sizes: list[tuple[int, int]], features: int, repeats: int
) -> Iterator[Record]:
    """Of (batch, tokens): time over the bound, and memory over that of one [B, n, D] tensor."""
    for batch, tokens in sizes:
        case = Case(device.name, batch, tokens, features)
        for kind, work in case.works("compiled").items():
            name = f"attention on the device, {batch} x {tokens}, {kind}"
            bound = device.bound_ms(kind, case.pair_features)
            yield limited(f"{name}, Triton v. bound", milliseconds(work, repeats), bound, "ms")
        one = batch * tokens * features * 4 / 1e6
        yield limited(f"{name}, memory v. a tensor", [added_mb(work)], one, "MB")


def rival_records(
    device: str, batch: int, tokens: int, features: int, repeats: int
) -> Iterator[Record]:
    """Triton against our eager form."""
    case = Case(device, batch, tokens, features)
    eager = case.works("eager")
    for kind, work in case.works("compiled").items():
        name = f"attention on the device, {batch} x {tokens}, {kind}, Triton v. eager"
        yield compared(name, *(milliseconds(w, repeats) for w in (work, eager[kind])), "ms")


def added_mb(work: Work) -> float:
    """Most megabytes that a call adds on the device."""
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    work()
    torch.cuda.synchronize()
    return max(1e-6, (torch.cuda.max_memory_allocated() - before) / 1e6)


def snli_records(device: str, pairs: int, repeats: int) -> Iterator[Record]:
    """Loss and gradients of pairs of SNLI's lengths: 14 words and 8 on average."""
    generator = torch.Generator().manual_seed(0)
    lengths = [torch.randint(*ends, (pairs,), generator=generator) for ends in ((4, 25), (3, 14))]
    valid = [torch.arange(int(some.max())) < some[:, None] for some in lengths]
    tokens = [torch.randint(1, 2000, v.shape, generator=generator) * v for v in valid]
    given = [t.to(device) for t in tokens], [v.to(device) for v in valid]
    for encoder in ("disan", "resan"):
        sides = [step_of(encoder, b, *given, device) for b in ("compiled", "eager")]
        times = [milliseconds(work, repeats) for work in sides]
        name = f"step of {pairs} pairs of SNLI's lengths on the device, {encoder}"
        yield compared(f"{name}, Triton v. eager", *times, "ms")


def device_records(device: Device, repeats: int) -> Iterator[Record]:
    """All of them."""
    yield from snli_records(device.name, 64, repeats)
    yield from rival_records(device.name, 64, 64, 300, repeats)
    sizes = [(64, 16), (128, 64), (16, 512), (2, 4096), (1, 16384)]
    yield from kernel_records(device, sizes, 300, repeats)
