"""Time and memory of every encoder by sentence length (Bi-BloSAN paper, figure 6).

    python tests/benchmarks/lengths.py --out lengths

Random embedded sentences without padding go through each encoder of the registry, on one thread:
`training` is forward and backward (dropout on, gradients of weights and input, no optimiser),
`inference` is forward alone. ReSAN stands there with 100%, 30% and 10% of the tokens selected at
random in each role; the removal of the others is counted. Bi-BloSAN's blocks are those of its
paper's rule for the length.

Every measurement is a process of its own, which first runs a tiny encoder of the kind, so that code
is loaded. Peak memory is the most resident above that: weights, gradients, input and all. Time is
CPU time of the process, so that what else the machine runs is not counted, though it slows memory.
Rounds go over the whole grid, and a ratio is to the base encoder's measurement a moment before it
at the same length; medians over rounds. A cell over 10 s is measured in one round.

Cells that run out of memory (of the limit, or of four fifths of what the machine has left) or time
are reported as such. OUT/lengths.json holds what is done: the same command continues from it. Also
written: lengths.csv and lengths.png.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from apart import FAILED, OK, OUT_OF_MEMORY, TOO_SLOW, Peak, available_mb, run_apart
from lengths_report import write_report

from rss_rl.components import built_in_names, find_component
from rss_rl.config import ModelConfig
from rss_rl.durable import replace_file
from rss_rl.models.build import build_encoder
from rss_rl.models.dropout import keyed_dropout
from rss_rl.models.encoders.protocol import TrainingLengths
from rss_rl.models.sentences import remove_unselected
from rss_rl.ops.masking import gather

RESAN_SHARES = (1.0, 0.3, 0.1)
MODES = ("training", "inference")
LENGTHS, LONG = (16, 32, 64, 128, 256, 384), 4096
REPEATED_BELOW_S = 10.0
TIMED_S, SINGLE_ABOVE_S = 0.4, 3.0
_TINY = {"batch": 2, "n": 8, "size": 8}


@dataclass(frozen=True)
class Line:
    """An encoder and the share of tokens that each role selects."""

    encoder: str
    share: float = 1.0

    @property
    def name(self) -> str:
        """As reports have it."""
        return f"{self.encoder} {self.share:.0%}" if self.encoder == "resan" else self.encoder


@dataclass(frozen=True)
class Place:
    """A column of the grid: sentences of `n` tokens, `batch` of them, in training or inference."""

    n: int
    batch: int
    mode: str


def encoder_names() -> tuple[str, ...]:
    """All that read word vectors."""
    return tuple(
        name
        for name in built_in_names("encoder")
        if "pretrained" not in find_component("encoder", name).options.model_fields
    )


def lines_of(encoders: Sequence[str]) -> list[Line]:
    """One line an encoder, several of ReSAN."""
    shares = {"resan": RESAN_SHARES}
    return [Line(name, share) for name in encoders for share in shares.get(name, (1.0,))]


class Step:
    """An encoder and a batch; calling it makes one step."""

    def __init__(self, line: Line, place: Place, embedding: int, hidden: int) -> None:
        torch.manual_seed(place.n)
        self._training, self._share = place.mode == "training", line.share
        config = ModelConfig.model_validate({"encoder": line.encoder, "hidden": hidden})
        lengths = TrainingLengths(((place.n, 0.0),), batch_size=1)
        self._encoder: Any = build_encoder(config, embedding, lengths)
        self._encoder.train(self._training)
        shape = (place.batch, place.n)
        self._embedded = torch.randn(*shape, embedding, requires_grad=self._training)
        self._valid = torch.ones(shape, dtype=torch.bool)
        self._selection = random_selection(*shape, line.share)
        self._positions = torch.arange(place.n).expand(shape)
        self._gradient = torch.randn(place.batch, self._encoder.output_size)
        self._keys = torch.arange(place.batch)

    def __call__(self) -> None:
        """Forward and backward, or forward alone."""
        if not self._training:
            with torch.inference_mode():
                self._encode()
            return
        self._encoder.zero_grad()
        self._embedded.grad = None
        with keyed_dropout(self._keys):
            self._encode().backward(self._gradient)

    def _encode(self) -> Any:
        embedded, valid, selection = self._embedded, self._valid, self._selection
        if self._share < 1 and not self._encoder.reads_unselected:
            positions, valid, selection = remove_unselected(self._positions, valid, selection)
            embedded = gather(embedded, positions)
        return self._encoder(embedded, valid, selection)


def random_selection(sentences: int, tokens: int, share: float) -> torch.Tensor:
    """bool [sentences, 2, tokens] with round(share * tokens), at least one, set in each row."""
    kept = max(1, round(share * tokens))
    return torch.rand(sentences, 2, tokens).argsort(-1) < kept


def measure(line: Line, place: Place, embedding: int, hidden: int) -> dict[str, float]:
    """Seconds of a step (CPU and wall) and peak memory, of this process."""
    torch.set_num_threads(1)
    tiny = Place(_TINY["n"], _TINY["batch"], place.mode)
    Step(line, tiny, _TINY["size"], _TINY["size"])()
    peak = Peak()
    step = Step(line, place, embedding, hidden)
    cpu, wall = timed(step, 0.0)
    peak_mb = peak.mb()
    if cpu < SINGLE_ABOVE_S:  # else loading of code is nothing beside it
        cpu, wall = timed(step, TIMED_S)
    return {"seconds": cpu, "wall_s": wall, "peak_mb": peak_mb}


def timed(step: Step, least_s: float) -> tuple[float, float]:
    """CPU and wall seconds of a step, over as many as take `least_s`, at least one.

    The clock of CPU time may tick in steps of 4 ms, so that steps are not timed one by one.
    """
    cpu, wall, steps = time.process_time(), time.perf_counter(), 0
    while steps == 0 or time.process_time() - cpu < least_s:
        step()
        steps += 1
    return (time.process_time() - cpu) / steps, (time.perf_counter() - wall) / steps


class Results:
    """The file of finished cells.

    Raises:
        ValueError: cells of other settings are there.
    """

    def __init__(self, path: Path, settings: dict[str, Any]) -> None:
        self._path, self.settings = path, settings
        self.cells: list[dict[str, Any]] = []
        if path.exists():
            found = json.loads(path.read_text())
            if found["settings"] != settings:
                raise ValueError(
                    f"{path} holds cells of other settings, {found['settings']}: give another --out"
                )
            # What failed may have been mended since.
            self.cells = [cell for cell in found["cells"] if cell["status"] != FAILED]

    def add(self, cell: dict[str, Any]) -> None:
        """Keep a cell, on disk too."""
        self.cells.append(cell)
        whole = {"settings": self.settings, "cells": self.cells}
        replace_file(self._path, json.dumps(whole, indent=1) + "\n")

    def is_done(self, line: Line, place: Place, round_: int) -> bool:
        """Measured in this round, or not to be repeated."""
        return any(
            cell["round"] == round_ or cell["status"] != OK or cell["took_s"] > REPEATED_BELOW_S
            for cell in self.cells
            if cell["line"] == line.name and Place(*(cell[k] for k in asdict(place))) == place
        )


def measure_grid(
    results: Results, lines: Sequence[Line], places: Sequence[Place], base: Line, rounds: int
) -> Iterator[dict[str, Any]]:
    """Measure what is missing; the base goes first wherever another is measured."""
    for round_ in range(rounds):
        for place in places:
            missing = [line for line in lines if not results.is_done(line, place, round_)]
            if not missing:
                continue
            base_s = None
            for line in [base, *(line for line in missing if line != base)]:
                cell = measure_cell(line, place, results.settings)
                if line == base:
                    base_s = cell.get("seconds")
                if base_s and "seconds" in cell:
                    cell["ratio"] = cell["seconds"] / base_s
                results.add(cell | {"round": round_})
                yield cell


def measure_cell(line: Line, place: Place, settings: dict[str, Any]) -> dict[str, Any]:
    """One measurement, in a process of its own."""
    memory_mb = min(1000 * settings["memory_gb"], 0.8 * available_mb())
    sizes = settings["embedding"], settings["hidden"]
    started = time.monotonic()
    outcome = run_apart(
        measure, line, place, *sizes, memory_mb=memory_mb, seconds=settings["seconds"]
    )
    cell = {"line": line.name, **asdict(place), "status": outcome.status, "why": outcome.why}
    return cell | (outcome.value or {}) | {"took_s": time.monotonic() - started}


def describe(cell: dict[str, Any]) -> str:
    """A line of progress."""
    where = f"n = {cell['n']:>4}  B = {cell['batch']:>2}  {cell['mode']:<9}  {cell['line']:<18}"
    if cell["status"] in (OUT_OF_MEMORY, TOO_SLOW):
        return f"{where}  {cell['status']} ({cell['why']})"
    if cell["status"] != OK:
        return f"{where}  {cell['status']}: {cell['why']}"
    ratio = f"{cell['ratio']:6.2f} x base" if "ratio" in cell else ""
    return f"{where}  {cell['seconds']:8.4f} s  {cell['peak_mb']:8.1f} MB  {ratio}"


def parse() -> argparse.Namespace:
    """The command line."""
    names = encoder_names()
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("lengths"), help="directory of results")
    parser.add_argument("--encoders", nargs="+", choices=names, default=list(names))
    parser.add_argument("--base", choices=names, help="of ratios; default bilstm or source2token")
    parser.add_argument("--lengths", nargs="+", type=int, default=[*LENGTHS, LONG])
    parser.add_argument("--batch", type=int, default=64, help=f"1 where n is {LONG} or more")
    parser.add_argument("--embedding", type=int, default=300)
    parser.add_argument("--hidden", type=int, default=300)
    parser.add_argument("--memory-gb", type=float, default=12.0, help="limit of a cell")
    parser.add_argument("--seconds", type=int, default=90, help="limit of a cell, of CPU time")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--minutes", type=float, default=14.0, help="stop there; continue later")
    given = parser.parse_args()
    given.base = given.base or ("bilstm" if "bilstm" in names else "source2token")
    return given


def main() -> None:
    """Measure, print, write."""
    given = parse()
    keys = ("batch", "embedding", "hidden", "memory_gb", "seconds", "base")
    given.out.mkdir(parents=True, exist_ok=True)
    settings = {key: getattr(given, key) for key in keys} | {"torch": torch.__version__}
    try:
        results = Results(given.out / "lengths.json", settings)
    except ValueError as error:
        raise SystemExit(str(error)) from error
    places = [
        Place(n, 1 if n >= LONG else given.batch, mode) for n in given.lengths for mode in MODES
    ]
    lines, started = lines_of(given.encoders), time.monotonic()
    for cell in measure_grid(results, lines, places, lines_of([given.base])[0], given.rounds):
        minutes = (time.monotonic() - started) / 60
        print(f"{minutes:5.1f} min  {describe(cell)}", flush=True)
        if minutes > given.minutes:
            print("time is over; the same command continues from here")
            break
    print(write_report(given.out, results.settings, results.cells))


if __name__ == "__main__":
    main()
