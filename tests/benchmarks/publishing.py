"""Publishing 12 MB of weights to two samplers: from the learner's modules into theirs.

    python tests/benchmarks/publishing.py --pretrained FOLDER

A benchmark of `bench.py`. A turn puts all parameters into the object store, and ends when both
sampler processes have loaded them and said so. With FOLDER, that of a transformer: what
an update of `transformer/sentences` with LoRA adapters publishes, and in turns calls that publish
nothing: in a run it is the call for the next shards that carries a publication. What other updates
have to publish where less changed, `publishing_sizes.py` shows.
"""

from __future__ import annotations

__all__ = ["publishing"]

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import ray
import torch
from peer_task import LABELS
from suite.records import Record, limited
from suite.timing import Settings

from rss_rl.cluster.bundles import fetched
from rss_rl.cluster.pool import store
from rss_rl.config import RunConfig, load_config
from rss_rl.packaged import find_config
from rss_rl.rollouts.snapshot import (
    CLASSIFIER,
    PARTS,
    POLICY,
    Models,
    Publisher,
    build_models,
)
from rss_rl.training.allocator import keep_freed_memory

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


def adapted(pretrained: str) -> Models:
    """Those of `transformer/sentences` with LoRA adapters, over vectors of 100 numbers."""
    asked = [f"model.encoder.options.pretrained={pretrained}", "model.encoder.options.learns=lora"]
    config = load_config(find_config("transformer/sentences"), asked)
    words = [f"word{number}" for number in range(1000)]
    return build_models(config, LABELS, 1, np.zeros((1000, 100), np.float32), 1000, words)


class Held:
    """The part of a sampler actor that takes snapshots."""

    def __init__(self, pretrained: str = "") -> None:
        from rss_rl.rollouts.snapshot import Parts, Snapshot

        torch.set_num_threads(1)  # as sampler.threads
        self._snapshot = Snapshot
        self._parts = Parts(adapted(pretrained) if pretrained else models())

    def hold(self, version: int, deltas: list[Any]) -> int:
        """As `SamplerActor.hold`; the version it holds."""
        self._parts.load(self._snapshot(version, fetched(deltas, 60.0)))
        return version


def publishing(settings: Settings) -> Iterator[Record]:
    """Milliseconds of a publication beside their limit; a repeat is the median of ten."""
    found = published((settings.repeats + 1) * BURST, models())
    rounds = np.array(found.times[BURST:]).reshape(-1, BURST)  # the first one does not count
    yield limited("publish/12 MB to 2 samplers", np.median(rounds, 1).tolist(), LIMIT_MS, "ms")


class Published(NamedTuple):
    """Milliseconds and bytes of publications, and milliseconds of calls without one in between."""

    times: list[float]
    sizes: list[int]
    empty: list[float]


def published(count: int, own: Models, pretrained: str = "") -> Published:
    """So many publications of all that is trained."""
    publisher = Publisher(own)
    trained = [CLASSIFIER, POLICY] if pretrained else PARTS
    keep_freed_memory()  # as a learner does
    torch.set_num_threads(1)  # as learner.threads: threads of torch wait busily for their next work
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
            samplers = [actor.remote(pretrained) for _ in range(SAMPLERS)]
            kept, found = list[Any](), Published([], [], [])
            for version in range(count):
                started = time.perf_counter()
                for part in trained:
                    publisher.note(part)
                snapshot = publisher.publish(version, whole=not version)
                kept = [*kept[-1:], [(d.reference, d.place) for d in store(snapshot.deltas)]]
                answers = [s.hold.remote(version, kept[-1]) for s in samplers]
                assert ray.get(answers, timeout=300) == [version] * SAMPLERS
                found.times.append(1000 * (time.perf_counter() - started))
                found.sizes.append(snapshot.bytes)
                started = time.perf_counter()
                ray.get([s.hold.remote(version, []) for s in samplers], timeout=300)
                found.empty.append(1000 * (time.perf_counter() - started))
        finally:
            ray.shutdown()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--pretrained", required=True, metavar="FOLDER", help="A transformer's.")
    given = parser.parse_args()
    found = published(6 * BURST, adapted(given.pretrained), given.pretrained)
    both = np.array([found.times[BURST:], found.empty[BURST:]]).reshape(2, -1, BURST)
    rounds, empty = np.median(both, 2)
    more = np.median(rounds - empty)
    print(
        f"{found.sizes[-1] / 1e6:.2f} MB to {SAMPLERS} samplers: {np.median(rounds):.1f} ms"
        f" ({rounds.min():.1f} to {rounds.max():.1f}, {len(rounds)} times the median of {BURST}),"
        f" {more:.1f} more than calls without it"
    )


if __name__ == "__main__":
    main()
