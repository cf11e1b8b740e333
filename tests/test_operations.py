"""A step of a run computes no more operations than it did, and reads no more numbers."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent / "benchmarks"))
import digest
import operations

MOST = {
    ("own", "auto"): {
        "sampling": (174, 1),
        "update of classifier": (150, 1),
        "update of classifier and policy": (405, 1),
        "update of policy": (255, 0),
        "evaluation": (169, 1),
    },
    ("own", "eager"): {
        "sampling": (272, 0),
        "update of classifier": (383, 0),
        "update of classifier and policy": (638, 0),
    },
}
"""Operations and reads of numbers, as tests/benchmarks/operations.py counts them."""


@pytest.mark.parametrize(("case", "attention"), MOST)
def test_operations_of_a_step(
    case: str, attention: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(digest, "UPDATES", 3)
    found = operations.count(case, attention, tmp_path)
    for step, (most, reads) in MOST[case, attention].items():
        assert found[step].operations <= most, (step, found[step])
        assert found[step].reads <= reads, (step, found[step])
