"""Publishing 12 MB of weights to two samplers: from the learner's modules into theirs.

A benchmark of `bench.py`. A turn copies all parameters, puts them into the object store, and ends
when both sampler processes have loaded them and said so. What an update has to publish where less
changed, `publishing_sizes.py` shows.
"""

from __future__ import annotations

__all__ = ["publishing"]

import os
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import ray
from peer_task import LABELS
from suite.records import Record, limited
from suite.timing import Settings

from rss_rl.config import RunConfig
from rss_rl.rollouts.snapshot import Models, build_models
from rss_rl.training.memory import keep_freed_memory

PARAMETERS, SAMPLERS, LIMIT_MS, BURST = 3_000_000, 2, 15.0, 10


def models() -> Models:
    """ReSAN of SICK's size whose word vectors make up what is missing to 3 M parameters."""
    tree: dict[str, Any] = {
        "data": "none",
        "model": {"hidden": 300},
        "phases": [{"name": "policy", "policy": True, "steps": 1}],
    }
    vectors = np.zeros((10, 300), np.float32)
    config = RunConfig.model_validate(tree)
    small = sum(p.numel() for p in build_models(config, LABELS, 2, vectors, 10).parameters())
    words = max(10, 10 + (PARAMETERS - small) // 300)
    return build_models(config, LABELS, 2, np.zeros((words, 300), np.float32), words)


class Held:
    """The part of a sampler actor that takes snapshots."""

    def __init__(self) -> None:
        from rss_rl.rollouts.snapshot import Snapshot

        self._snapshot, self._models = Snapshot, models()

    def hold(self, version: int, deltas: list[Any]) -> int:
        """As `SamplerActor.hold`; the version it holds."""
        self._models.load(self._snapshot(version, tuple(ray.get(deltas, timeout=60))))
        return version


def publishing(settings: Settings) -> Iterator[Record]:
    """Milliseconds of a publication beside their limit; a repeat is the median of ten."""
    keep_freed_memory()  # as a learner does
    with tempfile.TemporaryDirectory(prefix="pub-") as folder:
        ray.init(
            "local",
            num_cpus=SAMPLERS,
            include_dashboard=False,
            log_to_driver=False,
            configure_logging=False,
            object_store_memory=300_000_000,
            _temp_dir=folder,
            runtime_env={"env_vars": {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}},
        )
        try:
            actor = ray.remote(Held)
            samplers = [actor.remote() for _ in range(SAMPLERS)]
            own, kept = models(), list[Any]()
            times = []
            for version in range((settings.repeats + 1) * BURST):
                started = time.perf_counter()
                kept = [*kept[-1:], [ray.put(delta) for delta in own.publish(version).deltas]]
                answers = [s.hold.remote(version, kept[-1]) for s in samplers]
                assert ray.get(answers, timeout=60) == [version] * SAMPLERS
                times.append(1000 * (time.perf_counter() - started))
        finally:
            ray.shutdown()
    rounds = np.array(times[BURST:]).reshape(-1, BURST)  # the first one does not count
    yield limited("publish/12 MB to 2 samplers", np.median(rounds, 1).tolist(), LIMIT_MS, "ms")
