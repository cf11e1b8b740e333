"""What `auto` precision becomes on a device."""

from __future__ import annotations

import pytest
import torch

from rss_rl.config import LearnerConfig
from rss_rl.rollouts import snapshot
from rss_rl.rollouts.device import multiplies_bfloat16

CPU = torch.device("cpu")


@pytest.mark.parametrize("has", [True, False])
def test_auto_is_bfloat16_where_the_device_multiplies_it(
    has: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: has, raising=False)
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: False, raising=False)
    assert multiplies_bfloat16(CPU) is has
    assert not multiplies_bfloat16(torch.device("meta"))
    expected = {
        "auto": torch.bfloat16 if has else None,
        "bfloat16": torch.bfloat16,
        "float32": None,
    }
    for precision, dtype in expected.items():
        assert LearnerConfig(precision=precision).precision == precision  # type: ignore[arg-type]
        assert snapshot.autocast_dtype(CPU, precision) is dtype
        with snapshot.autocast(CPU, precision):
            assert torch.is_autocast_enabled("cpu") is (dtype is not None)


def test_a_torch_that_cannot_tell_is_taken_to_have_none(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_is_avx512_bf16_supported", "_is_amx_tile_supported"):
        monkeypatch.delattr(torch.cpu, name, raising=False)
    assert not multiplies_bfloat16(CPU)
