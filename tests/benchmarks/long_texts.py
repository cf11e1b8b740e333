"""Feature-wise attention on long texts: exact, on a grid of scores, and torch's dot products.

    python tests/benchmarks/long_texts.py --out long-texts
    python tests/benchmarks/bench.py --only long-texts long-texts-16k    # ratios alone, as records

One text of n tokens, D features, forward mask, one thread: `exact` is the compiled kernel of all
pairs (without a C++ compiler it is eager, which is many times slower),
`grid E` the linear one to the error E of the largest value (planning included), `dot product` is
torch's scaled_dot_product_attention with one causal head of D features, which weighs a pair once
and not D times. Queries, scores and values are given; scores are normal of deviation --spread.
`training` is forward and backward, `inference` forward alone.

Every measurement is a process of its own, under a limit of memory and of CPU time; a cell that
passes one is reported so. Time is CPU time, peak memory what is resident above the inputs. Rounds
go over the whole grid; medians over rounds, and the ratio of medians to that of the exact kernel.
OUT/long-texts.json holds what is done: the same command continues from it. Also written:
long-texts.md and long-texts.png.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from apart import OK, Peak, available_mb, run_apart
from lengths import MODES, SINGLE_ABOVE_S, TIMED_S, Place, Results, timed
from plotting import COLOURS, figure_of
from suite.records import Record, compared
from suite.timing import Settings

from rss_rl.models.attention_choice import attention_backend
from rss_rl.ops.attention import feature_wise_attention
from rss_rl.ops.attention_pairs import Pairs
from rss_rl.ops.linear_attention import linear_attention, make_plan
from rss_rl.ops.masking import Gathered

LENGTHS = (256, 1024, 4096, 16384)
SCALE = 5.0
MEASURES = {"seconds": "CPU seconds", "peak_mb": "peak memory, MB"}
CELL = {"features": 300, "spread": 1.0, "memory_gb": 8.0, "seconds": 600}
"""Sizes and limits of a cell."""
LEAST = {"seconds": 0.0, "peak_mb": 0.1}
"""Below the grain of the measurement."""


@dataclass(frozen=True)
class Kernel:
    """One way to attend; `error` where it is the grid's."""

    name: str
    error: float | None = None


EXACT, DOT = Kernel("exact"), Kernel("dot product")
GRIDS = (Kernel("grid 1e-2", 1e-2), Kernel("grid 1e-3", 1e-3))
KERNELS = (EXACT, *GRIDS, DOT)


class Attend:
    """A kernel and a text; calling it makes one step."""

    def __init__(
        self, kernel: Kernel, n: int, features: int, spread: float, training: bool
    ) -> None:
        generator = torch.Generator().manual_seed(n)
        normal = [torch.randn(1, n, features, generator=generator) for _ in range(3)]
        self._inputs = [(spread * t if k < 2 else t) for k, t in enumerate(normal)]
        for one in self._inputs:
            one.requires_grad_(training)
        self._flow = torch.randn(1, n, features, generator=generator) if training else None
        self._places = Gathered(torch.arange(n)[None], torch.ones(1, n, dtype=torch.bool))
        self._kernel, self._backend = kernel, attention_backend("auto")

    def __call__(self) -> None:
        """Forward, and backward in training."""
        with torch.set_grad_enabled(self._flow is not None):
            result = self._attend()
        if self._flow is not None:
            torch.autograd.grad(result, self._inputs, self._flow)

    def _attend(self) -> torch.Tensor:
        places = self._places
        if self._kernel == DOT:
            # Queries stand for the heads' scores and keys for the dependents': the same sizes.
            query, key, value = (t[:, None] for t in self._inputs)
            return F.scaled_dot_product_attention(query, key, value, is_causal=True)[:, 0]
        if self._kernel.error is None:
            pairs = Pairs(places, places, "before")
            return feature_wise_attention(*self._inputs, pairs, SCALE, self._backend)
        plan = make_plan(self._inputs[1], places, SCALE, self._kernel.error)
        if plan is None:
            raise ValueError(f"no plan keeps to {self._kernel.error}: lower --spread")
        return linear_attention(*self._inputs, places, places, "before", SCALE, plan)


def measure(kernel: Kernel, place: Place, features: int, spread: float) -> dict[str, float]:
    """Seconds of a step and peak memory, of this process."""
    torch.set_num_threads(1)
    training = place.mode == "training"
    Attend(kernel, 40, features, spread / 4, training)()  # loads the code, compiled if need be
    step = Attend(kernel, place.n, features, spread, training)
    peak = Peak()
    cpu, wall = timed(step, 0.0)
    peak_mb = peak.mb()
    if cpu < SINGLE_ABOVE_S:
        cpu, wall = timed(step, TIMED_S)
    return {"seconds": cpu, "wall_s": wall, "peak_mb": peak_mb}


def measure_cell(kernel: Kernel, place: Place, settings: dict[str, Any]) -> dict[str, Any]:
    """One measurement, in a process of its own."""
    memory_mb = min(1000 * settings["memory_gb"], 0.8 * available_mb())
    sizes = settings["features"], settings["spread"]
    started = time.monotonic()
    outcome = run_apart(
        measure, kernel, place, *sizes, memory_mb=memory_mb, seconds=settings["seconds"]
    )
    cell = {"line": kernel.name, **asdict(place), "status": outcome.status, "why": outcome.why}
    return cell | (outcome.value or {}) | {"took_s": time.monotonic() - started}


def measure_all(
    results: Results,
    places: Sequence[Place],
    rounds: int,
    measure_one: Callable[..., dict[str, Any]] = measure_cell,
    kernels: Sequence[Kernel] = KERNELS,
) -> Iterator[dict[str, Any]]:
    """Measure what is missing, the kernels in turn at each length."""
    for round_ in range(rounds):
        for place in places:
            for kernel in kernels:
                # Results compares names alone.
                if not results.is_done(kernel, place, round_):  # type: ignore[arg-type]
                    cell = measure_one(kernel, place, results.settings) | {"round": round_}
                    results.add(cell)
                    yield cell


def long_texts(settings: Settings) -> Iterator[Record]:
    """A benchmark of `bench.py`: up to 4,096 tokens, three rounds."""
    for n in LENGTHS[:-1]:
        yield from records_of(n, min(settings.repeats, 3), CELL)


def long_texts_16k(settings: Settings) -> Iterator[Record]:
    """A benchmark of `bench.py`: the longest, where the exact kernel takes minutes; one round."""
    yield from records_of(LENGTHS[-1], 1, CELL)


def records_of(n: int, rounds: int, settings: dict[str, Any]) -> Iterator[Record]:
    """The grid beside the exact kernel and the dot product, and the latter beside each other.

    A kernel that ran into a limit is told on standard error and is in no record.
    """
    for mode in MODES:
        cells: dict[str, list[dict[str, Any]]] = {kernel.name: [] for kernel in KERNELS}
        for _ in range(rounds):
            for kernel in KERNELS:
                cell = measure_cell(kernel, Place(n, 1, mode), settings)
                cells[kernel.name].append(cell)
                if cell["status"] != OK:
                    print(n, mode, kernel.name, cell["status"], cell["why"], file=sys.stderr)
        pairs = [(grid, rival) for grid in GRIDS for rival in (EXACT, DOT)]
        for ours, theirs in [*pairs, (EXACT, DOT)]:
            both = cells[ours.name], cells[theirs.name]
            if any(cell["status"] != OK for cell in (*both[0], *both[1])):
                continue
            for key, unit in (("seconds", "s"), ("peak_mb", "MB")):
                values = ([max(cell[key], LEAST[key]) for cell in some] for some in both)
                name = f"long texts/{mode}, n={n}, {ours.name} v. {theirs.name}"
                yield compared(f"{name}, memory" if unit == "MB" else name, *values, unit)


def medians(cells: Sequence[dict[str, Any]], place: Place, name: str, key: str) -> float | None:
    """Over the rounds."""
    found = [
        cell[key]
        for cell in cells
        if cell["line"] == name and cell["status"] == OK and _place(cell) == place
    ]
    return statistics.median(found) if found else None


def _place(cell: dict[str, Any]) -> Place:
    return Place(cell["n"], cell["batch"], cell["mode"])


def table(settings: dict[str, Any], cells: Sequence[dict[str, Any]]) -> str:
    """Markdown: a row for each length and mode, in brackets the ratio to the exact kernel."""
    lines = [
        f"One text, D = {settings['features']}, forward mask, one thread, torch"
        f" {settings['torch']}, scores of deviation {settings['spread']:g}; in brackets how many"
        " times less than the exact kernel."
    ]
    for key, title in MEASURES.items():
        lines += ["", f"| {title} | " + " | ".join(k.name for k in KERNELS) + " |"]
        lines.append("|---|" + "---:|" * len(KERNELS))
        for place in sorted(set(map(_place, cells)), key=lambda place: (place.mode, place.n)):
            texts = [entry(cells, place, kernel.name, key) for kernel in KERNELS]
            lines.append(f"| n = {place.n}, {place.mode} | " + " | ".join(texts) + " |")
    return "\n".join(lines) + "\n"


def entry(cells: Sequence[dict[str, Any]], place: Place, name: str, key: str) -> str:
    """`0.12 (9.3 ×)`, or why there is no number."""
    value, exact = (medians(cells, place, one, key) for one in (name, EXACT.name))
    if value is None:
        failed = [c for c in cells if c["line"] == name and _place(c) == place]
        return f"{failed[-1]['status']} ({failed[-1]['why']})" if failed else "–"
    ratio = f" ({exact / value:.3g} ×)" if exact and value and name != EXACT.name else ""
    return f"{value:.3g}{ratio}"


def draw(path: Path, cells: Sequence[dict[str, Any]]) -> None:
    """A panel for each mode and measure."""
    figure, panels = figure_of(2, 2)
    lengths = sorted({cell["n"] for cell in cells})
    settings = [(mode, key) for key in MEASURES for mode in MODES]
    for panel, (mode, key) in zip(panels, settings, strict=True):
        panel.set(title=f"{mode}: {MEASURES[key]}", xlabel="tokens n", xscale="log", yscale="log")
        panel.set_xticks(lengths, [str(n) for n in lengths], minor=False)
        panel.minorticks_off()
        panel.grid(alpha=0.3)
        for kernel, (colour, marker) in zip(KERNELS, COLOURS, strict=False):
            found = {n: medians(cells, Place(n, 1, mode), kernel.name, key) for n in lengths}
            known = {n: value for n, value in found.items() if value is not None}
            panel.plot(known.keys(), known.values(), color=colour, marker=marker, label=kernel.name)
    panels[0].legend()
    figure.savefig(path, dpi=120)


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("long-texts"))
    parser.add_argument("--lengths", nargs="+", type=int, default=list(LENGTHS))
    parser.add_argument("--modes", nargs="+", choices=MODES, default=list(MODES))
    names = [kernel.name for kernel in KERNELS]
    parser.add_argument("--kernels", nargs="+", choices=names, default=names)
    parser.add_argument("--features", type=int, default=CELL["features"])
    parser.add_argument("--spread", type=float, default=CELL["spread"])
    parser.add_argument("--memory-gb", type=float, default=CELL["memory_gb"], help="of a cell")
    parser.add_argument("--seconds", type=int, default=CELL["seconds"], help="CPU time of a cell")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--minutes", type=float, default=30.0, help="stop there; continue later")
    return parser.parse_args()


def main() -> None:
    """Measure, print, write."""
    given = parse()
    given.out.mkdir(parents=True, exist_ok=True)
    settings = {key: getattr(given, key) for key in CELL} | {"torch": torch.__version__}
    try:
        results = Results(given.out / "long-texts.json", settings)
    except ValueError as error:
        raise SystemExit(str(error)) from error
    places = [Place(n, 1, mode) for n in given.lengths for mode in given.modes]
    kernels = [kernel for kernel in KERNELS if kernel.name in given.kernels]
    started = time.monotonic()
    for cell in measure_all(results, places, given.rounds, kernels=kernels):
        minutes = (time.monotonic() - started) / 60
        said = f"{cell['seconds']:9.4f} s" if cell["status"] == OK else cell["status"]
        print(
            f"{minutes:5.1f} min  {cell['n']:>6} {cell['mode']:<9} {cell['line']:<12} {said}",
            flush=True,
        )
        if minutes > given.minutes:
            print("time is over; the same command continues from here")
            break
    text = table(settings, results.cells)
    (given.out / "long-texts.md").write_text(text)
    draw(given.out / "long-texts.png", results.cells)
    print(text)


if __name__ == "__main__":
    main()
