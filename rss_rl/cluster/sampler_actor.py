"""The sampler as a Ray actor, and a pool of them for a run."""

from __future__ import annotations

import time
from typing import Any

import ray

from rss_rl.cluster.actors import ActorProcess, this_process
from rss_rl.cluster.bundles import fetched
from rss_rl.cluster.folders import Sent, SharedFolders, with_folders_here
from rss_rl.cluster.pool import RayBackend
from rss_rl.config import RunConfig
from rss_rl.logs.events import NO_LOG, EventSink
from rss_rl.rollouts.device import find_device
from rss_rl.rollouts.rollout import Job
from rss_rl.rollouts.sampler import Sampler
from rss_rl.rollouts.snapshot import Snapshot, build_prepared_models, open_data


class SamplerActor:
    """A sampler in its own process, which fetches the deltas that it lacks."""

    def __init__(self, config: dict[str, Any], folders: dict[str, Sent]) -> None:
        self._config = with_folders_here(RunConfig.model_validate(config), folders)
        data = open_data(self._config)
        models = build_prepared_models(self._config, data)
        device = find_device("cuda" if self._config.sampler.gpus else "cpu", "sampler.gpus")
        train, words = data.split("train"), data.vocabulary.words
        self._sampler = Sampler(self._config, models, train, words, device)

    def process(self) -> ActorProcess:
        """The actor's process; returns once everything is loaded."""
        return this_process()

    def sample(
        self,
        jobs: list[list[Any]],
        version: int,
        deltas: list[tuple[Any, int]],
        charged: tuple[float, float] | None,
    ) -> list[list[bytes | float]]:
        """The rollout of each job, and the seconds that it took.

        Args:
            jobs: packed.
            version: of the policy.
            deltas: the changes since the previous call, to be loaded in this order: references to
                bundles, and places in them; in a list, so that a failed fetch is an error of this
                call.
            charged: see `Snapshot`.
        """
        started = time.perf_counter()
        found = fetched(deltas, self._config.sampler.timeout_s)
        self._sampler.load(Snapshot(version, found, charged))
        done = list[list[bytes | float]]()
        for job in jobs:
            rollout = self._sampler.sample(Job.unpacked(job)).to_bytes()
            finished = time.perf_counter()
            done.append([rollout, finished - started])
            started = finished
        return done


def ray_samplers(config: RunConfig, log: EventSink = NO_LOG) -> RayBackend:
    """The samplers of a run, on the cluster that this process has joined.

    Args:
        config: of the run; its data must be readable from every node.
        log: see `RayBackend`.

    Raises:
        SamplerError: none can be started.
    """
    sampler, tree = config.sampler, config.model_dump(mode="json")
    remote = ray.remote(SamplerActor).options(
        num_cpus=sampler.threads,
        num_gpus=sampler.gpus,
        resources=dict(sampler.resources),
        scheduling_strategy="SPREAD",
        max_restarts=0,
        max_task_retries=0,
    )
    folders = SharedFolders(config)
    return RayBackend(sampler, lambda _: remote.remote(tree, folders.sent()), log)
