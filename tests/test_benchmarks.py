"""The parts of the benchmarks that could be wrong without being seen to be."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from apart import OK, OUT_OF_MEMORY, Peak, run_apart
from lengths import Line, Place, measure
from lengths_report import write_report

SETTINGS = {"batch": 2, "embedding": 6, "hidden": 4, "memory_gb": 2.0, "seconds": 30} | {
    "base": "source2token",
    "torch": "x",
}
BASE, MEAN = Line("source2token"), Line("mean")


def peak_of(megabytes: float) -> float:
    """Peak of holding an array and then, when it is gone, one of half the size."""
    peak = Peak()
    for part in (1.0, 0.5):
        np.ones(int(megabytes * part * 1e6), dtype=np.uint8)
    return peak.mb()


@pytest.mark.parametrize("megabytes", [20.0, 300.0])
def test_the_peak_is_what_was_held_at_most(megabytes: float) -> None:
    outcome = run_apart(peak_of, megabytes, memory_mb=1000, seconds=60)
    assert outcome.status == OK
    assert outcome.value == pytest.approx(megabytes, abs=1.5)


def test_an_encoder_beyond_the_limit_is_out_of_memory() -> None:
    place = Place(512, 64, "training")  # torch's allocator, in the backward pass of pairs or before
    outcome = run_apart(measure, Line("resan"), place, 64, 64, memory_mb=60, seconds=60)
    assert outcome.status == OUT_OF_MEMORY


def test_the_report_has_medians_and_what_was_out_of_memory(tmp_path: Path) -> None:
    common = {"n": 4, "batch": 2, "mode": "training", "why": "", "status": OK, "line": "mean"}
    cells = [common | {"seconds": s, "peak_mb": 5.0, "ratio": s / 2} for s in (1.0, 0.25, 0.5)]
    cells.append(common | {"line": "resan 100%", "status": OUT_OF_MEMORY, "why": "> 2 GB"})
    write_report(tmp_path, SETTINGS, cells)
    rows = (tmp_path / "lengths.csv").read_text().splitlines()[1:]
    assert rows == [
        "training,4,2,mean,ok,,0.5,0.25,5.0",
        "training,4,2,resan 100%,out of memory,> 2 GB,,,",
    ]
    assert (tmp_path / "lengths.png").read_bytes().startswith(b"\x89PNG")
