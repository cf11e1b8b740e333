"""What each kernel of the CPU gives in what ships: its time with it and without it, in turn.

    python tests/benchmarks/kernels.py --out tests/benchmarks/results/kernels.csv

Without a kernel torch computes the same. A turn takes new batches with all kernels and without one,
in one process: torch prepares its products in bfloat16 for each number of rows that it meets. CPU
time of one thread. A line of the CSV has the median over the turns of how many times longer it
takes without the kernel, and its interval of 95% confidence.
"""

from __future__ import annotations

import argparse
import csv
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import product
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import torch
import torch.nn.functional as F
from scipy.stats import binom
from shipped import CONFIGS, Work, shipped_works
from torch import Tensor

from rss_rl.models import dropout as dropout_module
from rss_rl.models.layers import activation_function
from rss_rl.ops.attention import packed_attention
from rss_rl.ops.operators import Fusion
from rss_rl.ops.pooling import packed_pooling

Patches = Sequence[tuple[str, Any]]
"""Dotted names, and what stands there instead."""


def _maps(
    values: Tensor,
    weights: Sequence[Tensor],
    biases: Sequence[Tensor | None],
    *,
    activation: str = "none",
    drop: Any = None,
) -> tuple[Tensor, ...]:
    read = values if drop is None else dropout_module._Drop.apply(values, drop)
    made = (F.linear(read, w, b).to(w.dtype) for w, b in zip(weights, biases, strict=True))
    return tuple(made if activation == "none" else map(activation_function(activation), made))


def _mix(parts: Sequence[Fusion]) -> Tensor:
    outputs = [torch.lerp(s, h, torch.sigmoid(gate + more)) for h, s, gate, more, _ in parts]
    return torch.cat(outputs, -1)


def _attention(*given: Any) -> Tensor:
    return packed_attention(*given[:-1], "eager")


def _pooling(*given: Any) -> Tensor:
    return packed_pooling(*given[:-1], "eager")


class _Dropout(dropout_module.Drop):
    def applied(self, values: Tensor, out: Tensor | None = None) -> Tensor:
        kept = dropout_module._kept(self.keys, values, self.dropped)
        found = values * kept.to(values.dtype).mul_(self.scale)
        return found if out is None else out.copy_(found)


_LAYERS = "rss_rl.models.layers"
_DIRECTION = "rss_rl.models.directional"
_APART = (f"{_DIRECTION}.DirectionalAttention.trains_together", lambda *_: False)
KERNELS: dict[str, Patches] = {
    "attention": [_APART, (f"{_DIRECTION}.packed_attention", _attention)],
    "both directions in one step": [_APART],
    "linear maps": [_APART, (f"{_LAYERS}.linear_maps", _maps)],
    "gates": [_APART, (f"{_DIRECTION}.gate_mix", _mix)],
    "pooling": [(f"{_LAYERS}.packed_pooling", _pooling)],
    "dropout": [("rss_rl.models.dropout.Drop", _Dropout)],
}
"""In place of one that works with others, those go, too: the step of both directions is made of
attention, linear maps and gates."""


@contextmanager
def without(kernel: str) -> Iterator[None]:
    """Within it torch computes what the kernel would."""
    with ExitStack() as stack:
        for name, other in KERNELS.get(kernel, ()):
            stack.enter_context(patch(name, other))
        yield


def turn(work: Work, kernel: str, number: int) -> float:
    """How many times longer some batches take without a kernel; nobody has had them before."""
    seconds = {"": 0.0, kernel: 0.0}
    for batch in range(work.batches * number, work.batches * (number + 1)):
        for name in list(seconds) if batch % 2 else list(seconds)[::-1]:
            with without(name):
                started = time.process_time()
                work.run(batch)
                seconds[name] += time.process_time() - started
    return seconds[kernel] / seconds[""]


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Of the median, at 95%, by ranks."""
    ranked, count = sorted(values), len(values)
    below = max(0, int(binom.ppf(0.025, count, 0.5)) - 1)
    return ranked[below], ranked[count - 1 - below]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=30)
    parser.add_argument("--only", nargs="*", choices=KERNELS, default=list(KERNELS))
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    torch.set_num_threads(1)
    lines: list[dict[str, str]] = []
    with TemporaryDirectory() as folder:
        for config in CONFIGS:
            works = shipped_works(config, Path(folder, config))
            for (name, work), (count, kernel) in product(works.items(), enumerate(given.only)):
                first = count * (given.turns + 1)
                ratios = [turn(work, kernel, first + n) for n in range(given.turns + 1)][1:]
                low, high = interval(ratios)
                figures = {"ratio": median(ratios), "low": low, "high": high}
                lines.append(
                    {"row": kernel, "place": config, "mode": name, "turns": str(given.turns)}
                    | {key: f"{value:.3f}" for key, value in figures.items()}
                )
                print(*lines[-1].values(), flush=True)
    if given.out:
        with given.out.open("w", newline="") as opened:
            writer = csv.DictWriter(opened, lines[0], lineterminator="\n")
            writer.writeheader()
            writer.writerows(lines)


if __name__ == "__main__":
    main()
