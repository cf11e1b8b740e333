"""The parts of the benchmarks that could be wrong without being seen to be."""

from __future__ import annotations

import itertools
import json
import os
import signal
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import apart
import lengths
import numpy as np
import pytest
from apart import FAILED, OK, OUT_OF_MEMORY, TOO_SLOW, Peak, run_apart
from lengths import Line, Place, Results, measure, measure_grid
from lengths_report import write_report

SETTINGS = {"batch": 2, "embedding": 6, "hidden": 4, "memory_gb": 2.0, "seconds": 30} | {
    "base": "source2token",
    "torch": "x",
}
PLACES = [Place(n, 2, mode) for n in (4, 8) for mode in lengths.MODES]
BASE, MEAN = Line("source2token"), Line("mean")


def peak_of(megabytes: float) -> float:
    """Peak of holding an array and then, when it is gone, one of half the size."""
    peak = Peak()
    for part in (1.0, 0.5):
        np.ones(int(megabytes * part * 1e6), dtype=np.uint8)
    return peak.mb()


def end_as(how: str) -> None:
    if how == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "gone":
        os._exit(3)
    if how == "asleep":
        time.sleep(60)
    while how == "slow":
        pass
    raise ValueError(how)


@pytest.mark.parametrize("megabytes", [20.0, 300.0])
def test_the_peak_is_what_was_held_at_most(megabytes: float) -> None:
    outcome = run_apart(peak_of, megabytes, memory_mb=1000, seconds=60)
    assert outcome.status == OK
    assert outcome.value == pytest.approx(megabytes, abs=1.5)


def test_an_encoder_beyond_the_limit_is_out_of_memory() -> None:
    place = Place(512, 64, "training")  # torch's allocator, in the backward pass of pairs or before
    outcome = run_apart(measure, Line("resan"), place, 64, 64, memory_mb=60, seconds=60)
    assert outcome.status == OUT_OF_MEMORY


@pytest.mark.parametrize(
    ("how", "status", "why"),
    [
        ("killed", OUT_OF_MEMORY, "killed by the system"),
        ("gone", FAILED, "the process ended with 3"),
        ("raises", FAILED, "ValueError: raises"),
    ],
)
def test_how_a_process_ends_is_reported(how: str, status: str, why: str) -> None:
    outcome = run_apart(end_as, how, memory_mb=500, seconds=60)
    assert (outcome.status, outcome.why) == (status, why)


@pytest.mark.parametrize(
    ("how", "why"), [("slow", "> 1 s"), ("asleep", "> 2 s on the clock")], ids=["slow", "asleep"]
)
def test_what_takes_too_long_is_killed(how: str, why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apart, "_WAITED", 20 if how == "slow" else 2)
    started = time.monotonic()
    outcome = run_apart(end_as, how, memory_mb=500, seconds=1)
    assert (outcome.status, outcome.why) == (TOO_SLOW, why)
    assert time.monotonic() - started < 30


def grid(
    path: Path, lines: list[Line], rounds: int = 1, most: int | None = None
) -> list[dict[str, Any]]:
    going = measure_grid(Results(path, SETTINGS), lines, PLACES, BASE, rounds)
    return list(itertools.islice(going, most))


def test_the_grid_goes_on_from_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def measured(line: Line, place: Place, settings: dict[str, Any]) -> dict[str, Any]:
        asked.append((line.name, place))
        cell = {"line": line.name, **asdict(place), "status": OK, "why": "", "took_s": 0.1}
        if line == MEAN and place.n == 8:
            return cell | {"status": TOO_SLOW, "why": "> 30 s"}
        return cell | {"seconds": 3.0 if line == BASE else 1.5, "peak_mb": 4.0}

    monkeypatch.setattr(lengths, "measure_cell", measured)
    path = tmp_path / "lengths.json"
    grid(path, [MEAN, BASE], most=3)
    assert len(json.loads(path.read_text())["cells"]) == 3
    asked.clear()
    cells = grid(path, [MEAN, BASE])
    # The base is there for the second place already and is measured again beside the other.
    assert asked == [(line.name, place) for place in PLACES[1:] for line in (BASE, MEAN)]
    assert [cell.get("ratio") for cell in cells] == [1, 0.5, 1, None, 1, None]
    assert grid(path, [MEAN, BASE]) == []
    asked.clear()
    grid(path, [MEAN, BASE], rounds=2)
    assert ("mean", PLACES[2]) not in asked  # too slow once
    assert ("mean", PLACES[0]) in asked
    with pytest.raises(ValueError, match="other settings"):
        Results(path, SETTINGS | {"hidden": 5})


def test_every_encoder_of_a_configuration_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lengths, "TIMED_S", 0)
    lines = lengths.lines_of(lengths.encoder_names())
    assert {line.encoder for line in lines} >= {"mean", "source2token", "resan"}
    assert [line.name for line in lines if line.encoder == "resan"] == [
        "resan 100%",
        "resan 30%",
        "resan 10%",
    ]
    for line in lines:
        for mode in lengths.MODES:
            found = measure(line, Place(12, 3, mode), 8, 8)
            assert found["wall_s"] > 0, line.name


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
