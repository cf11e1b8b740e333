"""The sampler as a Ray actor, and a pool of them for a run."""

from __future__ import annotations

import time
from typing import Any

import ray

from rss_rl.cluster.actors import ActorProcess, this_process
from rss_rl.cluster.folders import Sent, SharedFolders, with_folders_here
from rss_rl.cluster.mailbox import MAIL, Mailbox
from rss_rl.cluster.pool import RayBackend
from rss_rl.config import RunConfig
from rss_rl.logs.events import NO_LOG, EventSink
from rss_rl.rollouts.device import find_device
from rss_rl.rollouts.published import StoredSnapshot
from rss_rl.rollouts.rollout import Job
from rss_rl.rollouts.sampler import Sampler
from rss_rl.rollouts.snapshot import build_prepared_models, open_data


class SamplerActor:
    """A sampler in its own process, which starts each job with the newest snapshot."""

    def __init__(self, config: dict[str, Any], folders: dict[str, Sent]) -> None:
        self._config = with_folders_here(RunConfig.model_validate(config), folders)
        data = open_data(self._config)
        models = build_prepared_models(self._config, data)
        device = find_device("cuda" if self._config.sampler.gpus else "cpu", "sampler.gpus")
        train, words = data.split("train"), data.vocabulary.words
        self._sampler = Sampler(self._config, models, train, words, device)
        self._mailbox = Mailbox(self._config.sampler.timeout_s)

    def process(self) -> ActorProcess:
        """The actor's process; returns once everything is loaded."""
        return this_process()

    @ray.method(concurrency_group=MAIL)
    def publish(self, number: int, snapshot: StoredSnapshot) -> None:
        """Take the publication of this number."""
        self._mailbox.put(number, snapshot)

    def sample(self, job: list[Any], number: int) -> tuple[bytes, float]:
        """The rollout of a packed job, and the seconds that it took.

        Args:
            number: of the oldest publication that may be used.
        """
        started = time.perf_counter()
        self._sampler.load(self._mailbox.take(number))
        rollout = self._sampler.sample(Job.unpacked(job)).to_bytes()
        return rollout, time.perf_counter() - started


def ray_samplers(config: RunConfig, log: EventSink = NO_LOG) -> RayBackend:
    """The samplers of a run, on the cluster that this process has joined.

    Args:
        config: of the run; its data must be readable from every node.
        log: see `RayBackend`.

    Raises:
        SamplerError: none can be started.
    """
    sampler, tree = config.sampler, config.model_dump(mode="json")
    asked: dict[str, Any] = {
        "num_cpus": sampler.threads,
        "num_gpus": sampler.gpus,
        "resources": dict(sampler.resources),
        "scheduling_strategy": "SPREAD",
        "concurrency_groups": {MAIL: 1},
        "max_restarts": 0,
        "max_task_retries": 0,
    }
    remote = ray.remote(**asked)(SamplerActor)
    folders = SharedFolders(config)
    return RayBackend(sampler, lambda _: remote.remote(tree, folders.sent()), log)
