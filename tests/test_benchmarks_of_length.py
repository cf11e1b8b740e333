"""The parts of the benchmarks of long texts and of selection that could be wrong unseen."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import long_texts
import pytest
import selection_pays
import torch
from apart import OK, TOO_SLOW
from compiling import needs_compiler
from lengths import Place, Results
from long_texts import EXACT, KERNELS, Kernel
from suite.timing import Settings

SETTINGS = {"features": 4, "spread": 0.5, "memory_gb": 2.0, "seconds": 30, "torch": "x"}


@pytest.mark.parametrize("mode", ["training", "inference"])
@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
def test_every_kernel_is_measured(
    kernel: Kernel, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(long_texts, "TIMED_S", 0.0)
    found = long_texts.measure(kernel, Place(70, 1, mode), 4, 0.5)
    assert found["wall_s"] > 0
    assert found.keys() == {"seconds", "wall_s", "peak_mb"}


def test_the_grid_of_cells_goes_on_from_its_file_and_becomes_a_table(tmp_path: Path) -> None:
    asked = []

    def measured(kernel: Kernel, place: Place, settings: dict[str, Any]) -> dict[str, Any]:
        asked.append((kernel, place.n))
        cell = {"line": kernel.name, **asdict(place), "status": OK, "why": "", "took_s": 0.1}
        if kernel == EXACT and place.n == 8:
            return cell | {"status": TOO_SLOW, "why": "> 30 s"}
        return cell | {"seconds": 3.0 if kernel == EXACT else 0.5, "peak_mb": 4.0}

    path, places = tmp_path / "long-texts.json", [Place(n, 1, "inference") for n in (4, 8)]
    going = long_texts.measure_all(Results(path, SETTINGS), places, 1, measured)
    next(going)
    going.close()
    results = Results(path, SETTINGS)
    assert len(list(long_texts.measure_all(results, places, 2, measured))) == 14
    assert asked.count((EXACT, 4)) == 2
    assert asked.count((EXACT, 8)) == 1  # too slow once
    text = long_texts.table(SETTINGS, results.cells)
    assert "| n = 4, inference | 3 | 0.5 (6 ×) | 0.5 (6 ×) | 0.5 (6 ×) |" in text
    assert "| n = 8, inference | too slow (> 30 s) | 0.5 | 0.5 | 0.5 |" in text
    long_texts.draw(tmp_path / "long-texts.png", results.cells)
    assert (tmp_path / "long-texts.png").read_bytes().startswith(b"\x89PNG")


def test_records_of_long_texts_are_of_kernels_that_kept_to_the_limits(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def measured(kernel: Kernel, place: Place, settings: dict[str, Any]) -> dict[str, Any]:
        if kernel == EXACT and place.mode == "training":
            return {"status": TOO_SLOW, "why": "> 30 s"}
        seconds = 3.0 if kernel == EXACT else 0.5
        return {"status": OK, "why": "", "seconds": seconds, "peak_mb": 0.0}

    monkeypatch.setattr(long_texts, "measure_cell", measured)
    records = {record.name: record for record in long_texts.records_of(8, 2, SETTINGS)}
    found = records["long texts/inference, n=8, grid 1e-2 v. exact"]
    assert (found.ours, found.theirs, found.ratio, found.n) == (0.5, 3.0, 6.0, 2)
    assert records["long texts/inference, n=8, grid 1e-2 v. exact, memory"].ratio == 1
    assert "long texts/training, n=8, grid 1e-3 v. dot product" in records
    assert not any("training" in name and "exact" in name for name in records)
    assert len(records) == 14
    assert "8 training exact too slow > 30 s" in capsys.readouterr().err


def test_expected_times_are_overhead_and_share_of_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    known = {"100%": [1.2], "50%": [0.35], "30%": [0.38], "10%": [0.05]}
    known |= {"100% alone": [0.2], "50% alone": [0.1], "30% alone": [0.1], "10% alone": [0.04]}
    monkeypatch.setattr(selection_pays, "milliseconds", lambda works, repeats: known)
    records = list(selection_pays.attention_records(16, 2, 1))
    overheads, shares = records[::2], records[1::2]
    assert [(r.ours, r.theirs) for r in overheads] == [(0.1, 1.2), (0.1, 1.2), (0.04, 1.2)]
    assert [record.theirs for record in shares] == pytest.approx([0.35, 0.19, 0.05])
    assert [record.ratio for record in shares] == pytest.approx([1, 0.5, 1])


@needs_compiler
def test_tokens_that_may_not_look_find_nothing() -> None:
    seen = [selection_pays.attention(2, 12, 0.5, looks=looks)() for looks in (True, False)]
    assert all(isinstance(context, torch.Tensor) for context in seen)
    assert [bool(context.any()) for context in seen] == [True, False]  # type: ignore[attr-defined]


@needs_compiler
def test_models_of_selections_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selection_pays, "LEAST_S", 0.0)
    monkeypatch.setattr(selection_pays, "SIZE", 4)
    monkeypatch.setattr(selection_pays, "BATCHES", {10: 3})
    monkeypatch.setattr(selection_pays, "SENTENCES", {10: 3})
    records = list(selection_pays.selection(Settings(repeats=1)))
    assert [record.name for record in records] == [
        *(
            f"selection/attention, n=10, p=q={p}%{what}"
            for p in (50, 30, 10)
            for what in (", overhead v. all tokens and pairs", " v. overhead + pq")
        ),
        "selection/inference, n=10, faithful at 30% v. all tokens",
        "selection/inference, n=10, plain at 30% v. all tokens",
    ]
