"""Feature-wise attention by each backend.

    python tests/benchmarks/bench.py --only attention --clock cpu

The rival `materialised` is what the papers' program does: every pair's logit is in memory, softmax
over the dependents, torch's own gradients. With MALLOC_MMAP_THRESHOLD_ and MALLOC_TRIM_THRESHOLD_
at 1000000000 (read by glibc when a process starts) it is a fairer one: its temporaries are not
given back to the system and asked for again at every step. Sides are measured in turn in one
process, each after one unmeasured call. Peak memory is what one call adds, Linux only.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from suite.records import Record, compared
from suite.timing import CLOCKS, Settings
from torch import Tensor

from rss_rl.ops.attention import KernelBackend, feature_wise_attention
from rss_rl.ops.masking import kept_indices
from rss_rl.ops.packing import Pairs

SCALE = 5.0
Work = Callable[[], Any]
Backend = KernelBackend | Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
"""Ours by name, or a function such as `materialised`."""


def compare(
    name: str, ours: Work, theirs: Work, repeats: int, clock: Callable[[], float]
) -> Record:
    """Both in turn, in milliseconds."""
    milliseconds: dict[str, list[float]] = {"ours": [], "theirs": []}
    for repeat in range(repeats + 1):
        for side, work in (("ours", ours), ("theirs", theirs)):
            start = clock()
            work()
            if repeat:
                milliseconds[side].append(1000 * (clock() - start))
    return compared(name, milliseconds["ours"], milliseconds["theirs"], "ms")


def compare_memory(name: str, ours: Work, theirs: Work) -> Record:
    """Peak megabytes of one call of each."""
    return compared(name, [peak_mb(ours)], [peak_mb(theirs)], "MB")


def peak_mb(work: Work) -> float:
    """Megabytes that a call adds to what this process holds, at most; after one unmeasured call."""
    work()
    # Memory that was freed but kept would be used again and not be counted (glibc).
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")  # VmHWM begins anew at what is resident
    before = _held_mb("VmRSS")
    work()
    return max(_held_mb("VmHWM") - before, 0.1)


def _held_mb(field: str) -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    kibibytes = next(line.split()[1] for line in lines if line.startswith(f"{field}:"))
    return int(kibibytes) * 1024 / 1e6


def materialised(v: Tensor, u: Tensor, h: Tensor, allowed: Tensor) -> Tensor:
    """The attention with a tensor of all pairs, [M, J, I, D]."""
    logits = SCALE * torch.tanh((v[:, :, None] + u[:, None]) / SCALE)
    shown = torch.softmax(logits.masked_fill(~allowed[..., None], -1e30), 2)
    return (shown * h[:, None]).sum(2) * allowed.any(2)[..., None]


class Case:
    """Attention of B sentences of n tokens as a layer: the two dense maps are part of it."""

    def __init__(
        self, batch: int, tokens: int, features: int, device: torch.device | None = None
    ) -> None:
        self.h = torch.randn(batch, tokens, features, requires_grad=True, device=device)
        self.maps = [torch.nn.Linear(features, features, device=device) for _ in range(2)]
        everything = kept_indices(torch.ones(batch, tokens, dtype=torch.bool, device=device))
        self.pairs = Pairs(everything, everything, "before")
        self.allowed = self.pairs.mask(slice(None), slice(None))
        self.sought = [self.h, *(p for m in self.maps for p in m.parameters())]

    def forward(self, backend: Backend) -> Tensor:
        v, u = (dense(self.h) for dense in self.maps)
        if callable(backend):
            return backend(v, u, self.h, self.allowed)
        return feature_wise_attention(v, u, self.h, self.pairs, SCALE, backend)

    def infer(self, backend: Backend) -> Work:
        """Forward alone."""

        def work() -> None:
            with torch.no_grad():
                self.forward(backend)

        return work

    def train(self, backend: Backend) -> Work:
        """Forward and backward."""
        return lambda: torch.autograd.grad(self.forward(backend).sum(), self.sought)


def attention_records(
    batch: int, lengths: list[int], features: int, repeats: int, clock: Callable[[], float]
) -> Iterator[Record]:
    """Compiled against materialised and against our eager form."""
    tuned = "tuned" if "MALLOC_MMAP_THRESHOLD_" in os.environ else "plain"
    rivals: Mapping[str, Backend] = {
        f"materialised ({tuned})": materialised,
        "eager": "eager",
    }
    for tokens in lengths:
        case = Case(batch, tokens, features)
        for rival, backend in rivals.items():
            for kind, make in (("forward", case.infer), ("forward+backward", case.train)):
                name = f"attention n={tokens} {kind}, compiled v. {rival}"
                yield compare(name, make("compiled"), make(backend), repeats, clock)
                yield compare_memory(f"{name}, memory", make("compiled"), make(backend))


def attention(settings: Settings) -> Iterator[Record]:
    """A benchmark of `bench.py`; `device.sh` measures attention on a CUDA device."""
    torch.set_num_threads(settings.threads)
    clock = CLOCKS[settings.clock]
    yield from attention_records(128, [12, 32], 300, settings.repeats, clock)
