"""What is to be run on a GPU at hand runs: its small form here, and what of it fails ends alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import device
import pytest


@pytest.mark.timeout(400)
def test_the_small_form(repository: Path, tmp_path: Path) -> None:
    script = repository / "tests" / "benchmarks" / "device.sh"
    ended = subprocess.run(
        [script, tmp_path / "out", "--small"],
        env=os.environ | {"PYTHON": sys.executable},
        capture_output=True,
        text=True,
    )
    log = (tmp_path / "out" / "log.txt").read_text()
    assert ended.returncode == 0, ended.stdout + ended.stderr + log
    tree = json.loads((tmp_path / "out" / "device.json").read_text())
    assert tree["done"] == list(device.PARTS)
    failed = [row for row in tree["rows"] if "failed" in row]
    assert not failed
    fixed = [row for row in tree["rows"] if row.get("form", "").startswith("fixed")]
    assert fixed
    assert {row["host waits"] for row in fixed} == {0}
    text = (tmp_path / "out" / "device.md").read_text()
    assert all(f"## {part}\n" in text for part in device.PARTS)


def test_a_part_that_fails_ends_alone_and_is_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[str] = []

    def good(place: device.Place) -> Iterator[dict[str, Any]]:
        tried.append("good")
        yield {"figure": 1.23456}

    def bad(place: device.Place) -> Iterator[dict[str, Any]]:
        tried.append("bad")
        yield {"figure": 2}
        raise RuntimeError("no room\nfor more")

    monkeypatch.setattr(device, "PARTS", {"bad": bad, "good": good})
    monkeypatch.setattr(sys, "argv", ["device.py", str(tmp_path), "bad", "good", "--small"])
    assert device.main() == 1
    shown = json.loads((tmp_path / "device.json").read_text())["rows"]
    assert [row["part"] for row in shown] == ["bad", "bad", "bad", "good", "good"]
    assert shown[0]["failed"] == "RuntimeError: no room"
    assert shown[3]["figure"] == 1.235
    assert device.main() == 1
    assert tried == ["bad", "good", "bad"]
    assert "RuntimeError: no room" in (tmp_path / "device.md").read_text()
