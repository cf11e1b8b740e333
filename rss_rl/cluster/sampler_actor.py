"""The sampler as a Ray actor, which is sent snapshots while it works."""

from __future__ import annotations

import threading
import time
from typing import Any

import ray
from ray.exceptions import GetTimeoutError

from rss_rl.cluster.actors import ActorProcess, this_process
from rss_rl.config import RunConfig
from rss_rl.reading.device import find_device
from rss_rl.reading.models import build_prepared_models, open_data
from rss_rl.rollouts.rollout import Job
from rss_rl.rollouts.sampler import Sampler
from rss_rl.rollouts.snapshot import Snapshot, StoredSnapshot

MAIL = "mail"
"""The concurrency group of an actor, one thread, in which snapshots arrive."""


class Mailbox:
    """Takes snapshots in one thread, and gives what arrived in another.

    Args:
        timeout_s: longest wait for a snapshot, and for its weights.
    """

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._arrived = threading.Condition()
        self._number = 0
        self._snapshot = StoredSnapshot(-1, ())  # with the deltas since the last `take`

    def put(self, number: int, snapshot: StoredSnapshot) -> None:
        """Add a snapshot, which is the publication of this number; in their order."""
        with self._arrived:
            self._number, self._snapshot = number, self._snapshot.then(snapshot)
            self._arrived.notify_all()

    def take(self, number: int) -> Snapshot:
        """The newest snapshot, with the changes since the last call; waits for this publication.

        Raises:
            RayError: it did not arrive in time, or its weights cannot be fetched; the next call
                would lack them.
        """
        with self._arrived:
            if not self._arrived.wait_for(lambda: self._number >= number, self._timeout_s):
                raise GetTimeoutError(f"publication {number} did not arrive")
            snapshot = self._snapshot
            self._snapshot = StoredSnapshot(snapshot.version, ())
        references = list(dict.fromkeys(delta.reference for delta in snapshot.deltas))
        fetched = ray.get(references, timeout=self._timeout_s)
        bundles = dict(zip(references, fetched, strict=True))
        deltas = tuple(bundles[delta.reference][delta.place] for delta in snapshot.deltas)
        return Snapshot(snapshot.version, deltas)


class SamplerActor:
    """A sampler in its own process, which starts each job with the newest snapshot."""

    def __init__(self, config: dict[str, Any]) -> None:
        self._config = RunConfig.model_validate(config)
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
