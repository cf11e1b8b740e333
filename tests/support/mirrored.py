"""A run with a configuration and little else, and the means to bring it to a storage path."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rss_rl.config import parse_config
from rss_rl.logs.events import NullEventLog
from rss_rl.mirror.lease import WRITER_FILE, Lease
from rss_rl.mirror.mirror import Mirror
from rss_rl.runs.checkpoint import save_checkpoint
from rss_rl.runs.run_directory import STATUS_FILE, RunDirectory
from rss_rl.storage import Storage, open_storage

PHASE = {"name": "all", "supervised": True, "selection": "all", "steps": 2}
RUN = parse_config({"data": "nowhere", "seed": 3, "phases": [PHASE]}, where="test")
CONFIG = RUN.model_dump(mode="json")


def checkpoint(run: Path, step: int, value: int) -> None:
    """A state whose tensors and counters tell whether they belong together."""
    save_checkpoint(run, step, {"a": np.full(9, value)}, {"value": value}, keep_last=1)


@dataclass(frozen=True)
class SlowStorage(Storage):
    """Uploads of what belongs to a checkpoint wait for a gate."""

    gate: threading.Event

    def upload(self, source: Any, name: str, *rest: Any) -> None:
        assert name == STATUS_FILE or self.gate.wait(20)
        super().upload(source, name, *rest)


def wait_for(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def mirror(storage: Storage, run: Path, **settings: Any) -> Mirror:
    made = Mirror(storage, run, Lease(storage), **{"keep": False, **settings})
    made.start(NullEventLog())
    return made


def synced(tmp_path: Path, step: int) -> Storage:
    """A storage with a run at a step; its local copy is gone."""
    storage = open_storage(str(tmp_path / "there"))
    with RunDirectory.create(tmp_path / f"first-{step}", CONFIG) as run:
        made = mirror(storage, run.path)
        checkpoint(run.path, step, step)
        made.finish()
        made.close()
    return storage


def take(there: Path) -> bool:
    """Take a storage path as another process does; repeated, as a renewal may come between."""
    record = {"host": "elsewhere", "pid": 1, "time": time.time(), "token": "x"}
    (there / "other").write_text(json.dumps(record))
    os.replace(there / "other", there / WRITER_FILE)
    return False
