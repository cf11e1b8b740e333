"""What `auto` precision becomes on a device."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from rss_rl.config import LearnerConfig, RunConfig, parse_config
from rss_rl.reading.device import autocast, autocast_dtype, multiplies_bfloat16
from rss_rl.training.run import train

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
        "float32": None,
    }
    for precision, dtype in expected.items():
        assert LearnerConfig(precision=precision).precision == precision  # type: ignore[arg-type]
        assert autocast_dtype(CPU, precision) is dtype
        with autocast(CPU, precision):
            assert torch.is_autocast_enabled("cpu") is (dtype is not None)


def test_a_run_notes_its_precision(
    tiny_config: RunConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: True, raising=False)
    tree = tiny_config.model_dump(mode="json")
    tree["learner"]["precision"] = "auto"
    next(train(parse_config(tree, where="test"), tmp_path / "run"))
    record = json.loads((tmp_path / "run" / "provenance.json").read_text())
    assert record["learner.precision"] == "bfloat16"
