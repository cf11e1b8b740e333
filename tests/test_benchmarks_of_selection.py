"""The parts of the benchmarks of selection that could be wrong unseen."""

from __future__ import annotations

import pytest
import selection_pays
import torch
from compiling import needs_compiler
from suite.timing import Settings


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
