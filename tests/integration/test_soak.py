"""Half a minute of random harm to a real run changes nothing of what comes out of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from soak import soak

from rss_rl.config import RunConfig
from rss_rl.training.run import Finished, train

STEPS = {"warm-up": 150, "frozen": 150, "co-train": 600}


@pytest.mark.slow  # test_faults and test_driver_faults do each harm once
@pytest.mark.timeout(400)
def test_half_a_minute(tiny: Callable[..., RunConfig], tmp_path: Path) -> None:
    phases = [p.model_dump() | {"steps": STEPS[p.name]} for p in tiny().phases]
    common = {
        "phases": phases,
        "evaluation": {"every": 200, "all_tokens": False},
        "checkpoint": {"every": 50},
    }
    samplers = {"backend": "ray", "actors": 2, "timeout_s": 5, "max_restarts": 100}
    harmed = tmp_path / "harmed.yaml"
    harmed.write_text(json.dumps(tiny(**common, sampler=samplers).model_dump(mode="json")))
    result = soak(str(harmed), tmp_path / "run", minutes=0.5, every=6, overrides=[])
    assert result["harms"] >= 3
    assert result["each_update_once"]
    assert result["updates"] == sum(STEPS.values())
    assert not result["processes_left"]
    unharmed = [e for e in train(tiny(**common), tmp_path / "unharmed") if isinstance(e, Finished)]
    # Synchronous training repeats to the bit, whoever died.
    assert result["splits"] == unharmed[0].report["splits"]
