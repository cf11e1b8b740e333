"""The benchmark of attention on a device, on the CPU with a stub of the device's clock."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attention_cuda
import pytest
from attention_cuda import Device, kernel_records, rival_records, snli_records

from rss_rl.ops.attention import feature_wise_attention

FAKE = Device("cpu", units=2, clock=1e6)


@pytest.fixture(autouse=True)
def _no_device(monkeypatch: pytest.MonkeyPatch) -> None:
    def once(work: Callable[[], Any], repeats: int) -> list[float]:
        work()
        return [2.0] * repeats

    def eager(*given: Any) -> Any:
        return feature_wise_attention(*given[:-1], "eager")

    monkeypatch.setattr(attention_cuda, "milliseconds", once)
    monkeypatch.setattr(attention_cuda, "added_mb", lambda _: 3.0)
    monkeypatch.setattr(attention_cuda, "feature_wise_attention", eager)


def test_the_bound_is_of_two_functions_for_each_allowed_pair_and_way() -> None:
    records = list(kernel_records(FAKE, [(2, 5)], features=3, repeats=2))
    forward, both, memory = (record.theirs for record in records)
    pair_features = 2 * (0 + 1 + 2 + 3 + 4) * 3
    assert forward == pytest.approx(1000 * 2 * pair_features / (2 * 16 * 1e6))
    assert both == 2 * forward
    assert memory == 2 * 5 * 3 * 4 / 1e6
    assert records[0].ratio == pytest.approx(forward / 2.0)


def test_sides_and_steps_are_measured() -> None:
    assert [r.ratio for r in rival_records("cpu", 2, 4, 3, repeats=2)] == [1.0, 1.0]


def test_a_step_has_sentences_of_snli_s_lengths(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def step(encoder: str, backend: str, *given: Any) -> Callable[[], None]:
        asked.append((encoder, backend, [v.sum(1).float().mean().item() for v in given[1]]))
        return lambda: None

    monkeypatch.setattr(attention_cuda, "step_of", step)
    assert len(list(snli_records("cpu", 512, repeats=1))) == 2
    assert [one[:2] for one in asked] == [
        (encoder, side) for encoder in ("disan", "resan") for side in ("compiled", "eager")
    ]
    assert asked[0][2] == pytest.approx([14, 8], abs=0.5)
