"""Random harm to a real run and to the machine under it changes nothing of what comes out of it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from soak import soak

from rss_rl.config import RunConfig
from rss_rl.training.run import Finished, train
from rss_rl.training.status import read_status

STEPS = {"warm-up": 150, "frozen": 150, "co-train": 600}


def settings(tiny: Callable[..., RunConfig]) -> dict[str, Any]:
    return {
        "phases": [p.model_dump() | {"steps": STEPS[p.name]} for p in tiny().phases],
        "evaluation": {"every": 200, "all_tokens": False},
        "checkpoint": {"every": 50},
    }


def write(tiny: Callable[..., RunConfig], tmp_path: Path) -> Path:
    """The configuration of the run that is harmed."""
    samplers = {"backend": "ray", "actors": 2, "timeout_s": 5, "max_restarts": 100}
    harmed = tmp_path / "harmed.yaml"
    tree = tiny(**settings(tiny), sampler=samplers).model_dump(mode="json")
    harmed.write_text(json.dumps(tree))
    return harmed


def check(result: dict[str, Any], tiny: Callable[..., RunConfig], path: Path) -> None:
    assert result["harms"] >= 3
    assert result["each_update_once"]
    assert result["updates"] == sum(STEPS.values())
    assert not result["processes_left"]
    unharmed = [e for e in train(tiny(**settings(tiny)), path) if isinstance(e, Finished)]
    # Synchronous training repeats to the bit, whoever died.
    assert result["splits"] == unharmed[0].report["splits"]


@pytest.mark.slow  # test_faults and test_driver_faults do each harm once
@pytest.mark.timeout(400)
def test_half_a_minute(tiny: Callable[..., RunConfig], tmp_path: Path) -> None:
    result = soak(str(write(tiny, tmp_path)), tmp_path / "run", minutes=0.5, every=6, overrides=[])
    check(result, tiny, tmp_path / "unharmed")


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A filesystem of a few megabytes."""
    if os.geteuid():
        pytest.skip("only root can mount a small filesystem, to fill it")
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(place)]
    if (done := subprocess.run(mount, capture_output=True, text=True)).returncode:
        pytest.skip(f"no filesystem can be mounted here: {done.stderr.strip()}")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_machine_that_fails_too(
    tiny: Callable[..., RunConfig], tmp_path: Path, disk: Path
) -> None:
    """A disk that is full, a driver that is paused, a clock that jumps, a storage that refuses."""
    result = soak(
        str(write(tiny, tmp_path)),
        disk / "run",
        minutes=2.0,
        every=7,
        overrides=[],
        storage=tmp_path / "storage",
        disk=disk,
        seed=2,
    )
    assert len(result["harmed"]) >= 5
    check(result, tiny, tmp_path / "unharmed")
    assert read_status(str(tmp_path / "storage")).state == "finished"


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_network_that_is_cut(tiny: Callable[..., RunConfig], tmp_path: Path) -> None:
    if os.geteuid() or shutil.which("ip") is None:
        pytest.skip("only root, with iproute2, can make a network to cut")
    result = soak(
        str(write(tiny, tmp_path)),
        tmp_path / "run",
        minutes=2.0,
        every=12,
        overrides=[],
        network=True,
        seed=5,
    )
    assert result["harmed"].get("network cut", 0) >= 1
    check(result, tiny, tmp_path / "unharmed")
