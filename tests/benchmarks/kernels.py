"""What each kernel of the CPU gives in what ships: its time with it and without it, in turn.

    python tests/benchmarks/kernels.py --out tests/benchmarks/results/kernels.csv

Without a kernel torch computes the same. All in one process: a turn takes each batch with all
kernels and without each of them. CPU time of one thread. A line of the CSV has the median over the
turns of how many times longer it takes without the kernel, and its interval of 95% confidence.
"""

from __future__ import annotations

import argparse
import csv
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
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
from rss_rl.ops.attention import feature_wise_attention
from rss_rl.ops.masking import masked_softmax
from rss_rl.ops.native import OutOfRange

Patches = Sequence[tuple[str, Any]]
"""Dotted names, and what stands there instead."""


def _refused(*_: Any, **__: Any) -> Any:
    raise OutOfRange


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


def _mix(parts: Sequence[tuple[Tensor, ...]]) -> Tensor:
    outputs = [torch.lerp(s, h, torch.sigmoid(gate + more)) for h, s, gate, more in parts]
    return torch.cat(outputs, -1)


def _attention(v: Tensor, u: Tensor, h: Tensor, pairs: Any, scale: float) -> Tensor:
    heads, dependents = pairs.heads, pairs.dependents
    padded = heads.padded(v), dependents.padded(u), dependents.padded(h)
    return heads.unpadded(feature_wise_attention(*padded, pairs.padded(), scale))


def _pooling(scores: Tensor, values: Tensor, tokens: Any) -> Tensor:
    weights = masked_softmax(tokens.padded(scores), tokens.gathered().kept)
    return (weights * tokens.padded(values)).sum(1)


class _Dropout(dropout_module.Drop):
    def applied(self, values: Tensor, out: Tensor | None = None) -> Tensor:
        kept = dropout_module._kept(self.keys, values, self.dropped)
        found = values * kept.to(values.dtype).mul_(self.scale)
        return found if out is None else out.copy_(found)


_APART = ("rss_rl.ops.directions.native_directions", _refused)
KERNELS: dict[str, Patches] = {
    "both directions in one step": [_APART],
    "attention": [_APART, ("rss_rl.models.directional.packed_attention", _attention),
                  ("rss_rl.ops.directions.packed_attention", _attention)],
    "linear maps": [_APART, ("rss_rl.models.layers.linear_maps", _maps),
                    ("rss_rl.models.directional.linear_maps", _maps),
                    ("rss_rl.ops.directions.linear_maps", _maps)],
    "gates": [_APART, ("rss_rl.models.directional.gate_mix", _mix),
              ("rss_rl.ops.directions.gate_mix", _mix)],
    "pooling": [("rss_rl.models.layers.packed_pooling", _pooling)],
    "pooling of several selections": [("rss_rl.ops.pooling._run_shared", _refused)],
    "dropout": [("rss_rl.models.dropout.Drop", _Dropout)],
    "selectors": [("rss_rl.policies.rss.has_selectors", lambda *_: False)],
    "weight gradients by MKL": [("rss_rl.ops.products._quick_product", lambda: None)],
}  # fmt: skip


@contextmanager
def without(kernel: str) -> Iterator[None]:
    """Within it torch computes what the kernel would."""
    with ExitStack() as stack:
        for name, other in KERNELS.get(kernel, ()):
            stack.enter_context(patch(name, other))
        yield


def turn(work: Work, kernels: Sequence[str], number: int) -> dict[str, float]:
    """Seconds of some batches, with all kernels ("") and without each."""
    found = dict.fromkeys(("", *kernels), 0.0)
    for batch in range(work.batches * number, work.batches * (number + 1)):
        for kernel in list(found) if batch % 2 else list(found)[::-1]:
            with without(kernel):
                started = time.process_time()
                work.run(batch)
                found[kernel] += time.process_time() - started
    return found


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
            for name, work in works.items():
                turns = [turn(work, given.only, number) for number in range(given.turns + 1)][1:]
                for kernel in given.only:
                    ratios = [each[kernel] / each[""] for each in turns]
                    low, high = interval(ratios)
                    line = {"row": kernel, "place": config, "mode": name, "turns": str(given.turns)}
                    figures = {"ratio": median(ratios), "low": low, "high": high}
                    lines.append(line | {key: f"{value:.3f}" for key, value in figures.items()})
                    print(*lines[-1].values(), flush=True)
    if given.out:
        with given.out.open("w", newline="") as opened:
            writer = csv.DictWriter(opened, lines[0], lineterminator="\n")
            writer.writeheader()
            writer.writerows(lines)


if __name__ == "__main__":
    main()
