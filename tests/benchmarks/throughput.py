"""Synchronous against asynchronous training: updates a second, and where the time goes.

    python tests/benchmarks/throughput.py --config sick --data prepared/sick-relatedness

All variants share one Ray and take turns in short stretches of real co-training, so that what else
the machine does hits all of them alike; ratios are of medians over the stretches. Orchestration is
what is left of a synchronous update's wall time when the sampler's and the learner's work are taken
away: scheduling, transfer, publishing, reading metrics.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import ray

from rss_rl.cluster.roles import RayRoles
from rss_rl.config import RunConfig, load_config
from rss_rl.data.store import Prepared
from rss_rl.logs.events import NO_LOG
from rss_rl.logs.metrics import MetricsWriter
from rss_rl.packaged import find_config
from rss_rl.reading.models import open_data
from rss_rl.training.attempts import LocalRoles
from rss_rl.training.learner import LocalLearner
from rss_rl.training.trainer import Trainer

VARIANTS = {
    "local, synchronous": {"backend": "local"},
    "1 sampler, synchronous": {"backend": "ray", "actors": 1},
    "2 samplers, synchronous": {"backend": "ray", "actors": 2, "shards": 2},
    "1 sampler, asynchronous": {"backend": "ray", "actors": 1, "max_policy_lag": 4},
    "2 samplers, asynchronous": {"backend": "ray", "actors": 2, "max_policy_lag": 4},
}
BASE = "1 sampler, synchronous"
COTRAIN = {"name": "co-train", "supervised": True, "policy": True, "steps": 10**6}


@dataclass
class Tally:
    """Of one variant: updates a second of each stretch, and seconds by kind, an update each."""

    rates: list[float] = field(default_factory=list)
    scalars: dict[str, list[float]] = field(default_factory=dict)

    def mean(self, tag: str) -> float:
        return statistics.mean(self.scalars.get(tag, [0.0]))

    @property
    def wall_s(self) -> float:
        """Mean wall time of an update, all stretches together."""
        return statistics.mean(1 / rate for rate in self.rates)


def variant_config(config: RunConfig, sampler: dict[str, object]) -> RunConfig:
    tree = config.model_dump(mode="json") | {"phases": [COTRAIN]}
    tree["sampler"] |= {"shards": 1, "threads": 1} | sampler
    tree["learner"] |= {"threads": 1}
    for name in ("supervised", "policy"):
        tree["learner"][name]["decay_updates"] = None
    return RunConfig.model_validate(tree)


def make_trainer(config: RunConfig, prepared: Prepared, path: Path) -> Trainer:
    roles = LocalRoles() if config.sampler.backend == "local" else RayRoles()
    learner = LocalLearner(config, prepared)
    return Trainer(
        config,
        path,
        prepared,
        MetricsWriter(path),
        learner=learner,
        backend=lambda: roles.backend(config, prepared, NO_LOG),
    )


def stretch(trainer: Trainer, tally: Tally, updates: int) -> None:
    """A few updates to get going again, then `updates` that count."""
    for _ in range(3):
        trainer.update()
    started = time.perf_counter()
    for _ in range(updates):
        for tag, value in trainer.update().scalars.items():
            tally.scalars.setdefault(tag, []).append(value)
    tally.rates.append(updates / (time.perf_counter() - started))


def row_of(name: str, tally: Tally, base: float) -> dict[str, Any]:
    rate = statistics.median(tally.rates)
    return {
        "variant": name,
        "updates_per_s": rate,
        "spread": [min(tally.rates), max(tally.rates)],
        "ratio": rate / base,
        "wall_s": tally.wall_s,
        "learn_s": tally.mean("time/learn_s"),
        "wait_s": tally.mean("time/sample_s"),
        "publish_s": tally.mean("publish/duration_ms") / 1000,
        "busy_s": tally.mean("sampler/busy_s"),
        "lag": tally.mean("policy/lag"),
    }


def compare(config: RunConfig, rounds: int, updates: int) -> dict[str, Any]:
    """The variants in turn, in one Ray."""
    prepared = open_data(config)
    tallies = {name: Tally() for name in VARIANTS}
    with TemporaryDirectory() as folder:
        trainers = {
            name: make_trainer(variant_config(config, sampler), prepared, Path(folder, str(number)))
            for number, (name, sampler) in enumerate(VARIANTS.items())
        }
        for _ in range(rounds):
            for name, trainer in trainers.items():
                stretch(trainer, tallies[name], updates)
        for trainer in trainers.values():
            trainer.close()
    base = statistics.median(tallies[BASE].rates)
    rows = [row_of(name, tally, base) for name, tally in tallies.items()]
    one = next(row for row in rows if row["variant"] == BASE)
    orchestration = 1 - (one["busy_s"] + one["learn_s"]) / one["wall_s"]
    return {"rows": rows, "orchestration": orchestration}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", default="sick")
    parser.add_argument("--data", required=True)
    parser.add_argument("--updates", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    config = load_config(find_config(given.config), [f"data={given.data}"])
    ray.init(
        "local", num_cpus=16, include_dashboard=False, log_to_driver=False, configure_logging=False
    )
    found = compare(config, given.rounds, given.updates)
    ray.shutdown()
    for row in found["rows"]:
        print(json.dumps(row))
    share = found["orchestration"]
    print(f"orchestration of a synchronous update with one sampler: {share:.1%} of its wall time")
    if given.out:
        given.out.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
