"""A model of how training scales with samplers and learners, its constants measured, and checked.

    python tests/benchmarks/scaling.py --data prepared/sick-relatedness
    python tests/benchmarks/scaling.py --config transformer/sentences --data prepared/cr \
        --simulate 1 2 4 8 16

An update costs the learner

    T = l / k + a (k > 1) + s o + p / e

and N samplers bring the rollouts of

    N / (s c)

updates a second, with l the learner's work on a batch, k learners, a their exchange of gradients,
s shards an update, o the driver's work for a shard (submit, receive, read), p a publication,
e updates between two of them, and c a sampler's time for a shard with fetching weights. The slower
side decides; on a machine of few cores so does the sum of all work over the cores:

    rate = min(1 / T, N / (s c), cores / (l + s (o + c) + p / e))

Larger machines take larger updates: with a shard for each of N samplers in every update,

    shards/s = min(N / (N (l / k + o) + a (k > 1) + p), N / c)

This holds where max_policy_lag is at least 2 N / s: rollouts are learnt from in order, so samplers
wait for each other at a tighter bound.

`o` and `p` are measured with samplers that do nothing, `l` and `c` with real ones, one at a time.
Then the model's rates stand beside real runs with 1, 2 and 4 samplers and a simulated cluster of
many samplers that sleep in place of computing and do not import torch.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import ray
from fake_sampler import FakeSampler
from throughput import make_trainer, variant_config

from rss_rl.cluster.sampler_actor import MAIL
from rss_rl.cluster.sampler_pool import RayBackend
from rss_rl.config import RunConfig, load_config
from rss_rl.data.batch_order import BatchOrder
from rss_rl.data.store import Prepared
from rss_rl.logs.events import NO_LOG
from rss_rl.packaged import find_config
from rss_rl.reading.models import open_data
from rss_rl.rollouts.rollout import Job
from rss_rl.rollouts.snapshot import Snapshot
from rss_rl.training.attempts import LocalRoles
from rss_rl.training.learner import LocalLearner
from rss_rl.training.pipeline import RolloutPipeline

LAG = 8
Say = Callable[..., None]


@dataclass(frozen=True)
class Costs:
    """Seconds: of the learner a batch, a sampler a shard, the driver a shard, a publication."""

    learn: float
    sample: float
    orchestrate: float
    publish: float

    def update_s(self, learners: int = 1, exchange: float = 0.0) -> float:
        """Of the learner side, one shard an update and a publication every update."""
        return self.learn / learners + exchange * (learners > 1) + self.orchestrate + self.publish

    def rate(self, samplers: int, learners: int = 1, exchange: float = 0.0) -> float:
        """Updates a second where every process has a core of its own."""
        return min(1 / self.update_s(learners, exchange), samplers / self.sample)

    def shards(self, samplers: int, learners: int, exchange: float) -> tuple[float, float]:
        """Shards a second, and the learners' idle share, with a shard a sampler in every update."""
        busy = samplers * (self.learn / learners + self.orchestrate)
        busy += exchange * (learners > 1) + self.publish
        rate = min(samplers / busy, samplers / self.sample)
        return rate, 1 - rate * busy / samplers

    def shared_rate(self, samplers: int, cores: int) -> float:
        """Updates a second where all processes share `cores`."""
        work = self.learn + self.sample + self.orchestrate + self.publish
        return min(self.rate(samplers), cores / work)


def timed(trainer: Any, updates: int) -> tuple[float, dict[str, float]]:
    """Updates a second, and the mean of each metric."""
    for _ in range(4):
        trainer.update()
    started = time.perf_counter()
    reports = [trainer.update().scalars for _ in range(updates)]
    rate = updates / (time.perf_counter() - started)
    return rate, {tag: statistics.mean(r[tag] for r in reports) for tag in reports[0]}


def real(config: RunConfig, prepared: Prepared, updates: int, **sampler: object) -> Any:
    with TemporaryDirectory() as folder:
        trainer = make_trainer(variant_config(config, sampler), prepared, Path(folder))
        try:
            return timed(trainer, updates)
        finally:
            trainer.close()


@dataclass(frozen=True)
class Simulated:
    """Updates a second; of each, the seconds of publishing; of a shard, the driver's other work."""

    rate: float
    publish: float
    orchestrate: float


def simulate(
    samplers: int, lag: int, sample_s: float, learn_s: float, parts: tuple[Any, ...], updates: int
) -> Simulated:
    """The real pipeline and pool, where samplers and learner only sleep."""
    config, examples, deltas, pattern = parts
    order = BatchOrder(examples, config.batch_size, 0, reach=lag)
    shards, drawn = config.sampler.shards, config.sampler.selections
    asked = {"backend": "ray", "actors": samplers, "max_policy_lag": lag}
    sampler = config.sampler.model_copy(update=asked)
    fake = ray.remote(num_cpus=0.01, max_restarts=0, concurrency_groups={MAIL: 1})(FakeSampler)
    backend = RayBackend(sampler, lambda _: fake.remote(sample_s, pattern))
    wait_for_all(backend, samplers)
    spent = {"publish": 0.0, "orchestrate": 0.0}

    pipeline = RolloutPipeline(lambda: backend, sampler)

    def go(first: int, count: int) -> None:
        for update in range(first, first + count):
            started = time.perf_counter()
            pipeline.publish(Snapshot(update, deltas))
            spent["publish"] += time.perf_counter() - started
            started = time.thread_time()  # waiting costs none
            for asked in pipeline.admitted(update):
                pieces = np.array_split(order.rows(asked), shards)
                jobs = [
                    Job(asked, shard, rows, drawn, True, False) for shard, rows in enumerate(pieces)
                ]
                pipeline.give(asked, jobs)
            pipeline.take(update)
            spent["orchestrate"] += time.thread_time() - started
            time.sleep(learn_s)

    go(0, 2 * samplers)
    spent.update(publish=0.0, orchestrate=0.0)
    started = time.perf_counter()
    go(2 * samplers, updates)
    rate = updates / (time.perf_counter() - started)
    pipeline.close()
    return Simulated(rate, spent["publish"] / updates, spent["orchestrate"] / updates / shards)


def wait_for_all(backend: RayBackend, samplers: int, timeout_s: float = 300) -> None:
    deadline = time.monotonic() + timeout_s
    while backend.stats().samplers < samplers:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{backend.stats().samplers} of {samplers} samplers started")
        backend.collect(1.0)


def in_shards(config: RunConfig, shards: int) -> RunConfig:
    """Updates of so many shards, each as large as a batch is now."""
    sampler = config.sampler.model_copy(update={"shards": shards})
    size = shards * config.batch_size
    return config.model_copy(update={"sampler": sampler, "batch_size": size})


def measure(config: RunConfig, prepared: Prepared, parts: Any, updates: int) -> Costs:
    _, means = real(config, prepared, updates, backend="ray", actors=1)
    nothing = simulate(1, 0, 0.0, 0.0, parts, 5 * updates)
    publish = means["publish/duration_ms"] / 1000
    return Costs(means["time/learn_s"], means["sampler/busy_s"], nothing.orchestrate, publish)


def pattern_of(config: RunConfig, prepared: Prepared, learner: LocalLearner) -> Any:
    """A real rollout, for the size of what travels."""
    backend = LocalRoles().backend(config, prepared, NO_LOG)
    backend.publish(learner.publish(0))
    rows = np.arange(config.batch_size)
    backend.submit([Job(0, 0, rows, config.sampler.selections, True, False)])
    return backend.collect(0.0)[0][1]


def simulate_measured(
    costs: Costs, numbers: list[int], faster: float, parts: Any, updates: int, say: Say
) -> None:
    """As many samplers as the machine has no cores for, each as slow as the one measured."""
    there = replace(costs, learn=costs.learn / faster)
    for number in numbers:
        done = simulate(number, 2 * number, there.sample, there.learn, parts, updates)
        predicted = there.rate(number)
        say("simulated", samplers=number, faster=faster, predicted=predicted, measured=done.rate)


def go(config: RunConfig, given: argparse.Namespace, say: Say) -> None:
    """Measure, check, predict."""
    prepared, updates, samplers = open_data(config), given.updates, given.samplers
    learner = LocalLearner(variant_config(config, {"backend": "ray"}), prepared)
    others = (learner.publish(0).deltas, pattern_of(config, prepared, learner))
    parts = (in_shards(config, 1), prepared.split("train"), *others)
    costs = measure(config, prepared, parts, updates)
    say("costs in seconds", **asdict(costs))
    if given.simulate:
        simulate_measured(costs, given.simulate, given.faster, parts, updates, say)
        return
    # One sampler; then samplers that run ahead, a shard each.
    for number, shards, lag in ((1, 1, 0), (1, 4, 0), (samplers, samplers, 8)):
        larger = (in_shards(config, shards), *parts[1:])
        done = simulate(number, lag, 0.1 if lag else 0.0, 0.0, larger, updates)
        say("driver, a shard", samplers=number, shards=shards, seconds=done.orchestrate)
    for number in (1, 2, 4):
        asked = {"backend": "ray", "actors": number, "max_policy_lag": LAG}
        measured, _ = real(config, prepared, updates, **asked)
        predicted = costs.shared_rate(number, cores=os.cpu_count() or 1)
        say("real samplers", samplers=number, measured=measured, predicted=predicted)
    # Twice with sleeping work: once so long that the samplers decide, once the learner.
    for sample_s, learn_s in ((2.0, 0.01), (0.5, 0.1)):
        done = simulate(samplers, 2 * samplers, sample_s, learn_s, parts, 4 * samplers)
        fake = Costs(learn_s, sample_s, costs.orchestrate, costs.publish)
        predicted = fake.rate(samplers)
        say("simulated", samplers=samplers, predicted=predicted, measured=done.rate)
        say("of the driver's seconds", publish=done.publish, orchestrate=done.orchestrate)
    predict(costs, given.exchange, say)


def predict(costs: Costs, exchange: float, say: Say) -> None:
    """On cores of their own, with learners as fast as here, and 10 and 100 times as fast."""
    for faster in (1, 10, 100):
        there = replace(costs, learn=costs.learn / faster)
        for learners in (1, 2, 4):
            for samplers in (8, 64, 512):
                rate, idle = there.shards(samplers, learners, exchange)
                say(
                    "predicted",
                    faster=faster,
                    learners=learners,
                    samplers=samplers,
                    shards_per_s=rate,
                    learner_idle=idle,
                )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("settings", nargs="*", metavar="KEY=VALUE", help="As `rss-rl train`'s.")
    parser.add_argument("--config", default="sick")
    parser.add_argument("--data", required=True)
    parser.add_argument("--updates", type=int, default=40)
    parser.add_argument("--samplers", type=int, default=64, help="Of the simulated cluster.")
    parser.add_argument("--exchange", type=float, default=0.015, help="Seconds; gradients, k > 1.")
    parser.add_argument(
        "--simulate",
        nargs="+",
        type=int,
        metavar="SAMPLERS",
        help="After the costs nothing but as many samplers, which sleep as long as one computes.",
    )
    parser.add_argument("--faster", type=float, default=10.0, help="Learner of --simulate.")
    parser.add_argument("--out", type=Path)
    given = parser.parse_intermixed_args()
    config = load_config(find_config(given.config), [f"data={given.data}", *given.settings])
    ray.init(
        "local", num_cpus=16, include_dashboard=False, log_to_driver=False, configure_logging=False
    )
    lines: list[dict[str, Any]] = []

    def say(what: str, **values: float) -> None:
        lines.append({"what": what} | {k: round(v, 5) for k, v in values.items()})
        print(json.dumps(lines[-1]), flush=True)

    go(config, given, say)
    if given.out:
        given.out.write_text(json.dumps(lines, indent=1))
    ray.shutdown()


if __name__ == "__main__":
    main()
