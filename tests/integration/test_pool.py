"""The pool of samplers, with actors that fail in ways that real ones do now and then."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import ray

from rss_rl.cluster.actors import ActorProcess, this_process
from rss_rl.cluster.pool import RayBackend
from rss_rl.config import SamplerConfig
from rss_rl.errors import DataError, SamplerError
from rss_rl.rollouts.rollout import Job, Rollout
from rss_rl.rollouts.snapshot import Snapshot

ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])


pytestmark = pytest.mark.usefixtures("shared_ray")


class Actor:
    """Fails as many times as the file says, all actors together."""

    def __init__(self, fail_start: Path | None, fail_sample: Path | None) -> None:
        self._fail_sample = fail_sample
        if fail_start is not None:
            raise_once_more(fail_start)

    def process(self) -> ActorProcess:
        return this_process()

    def sample(self, jobs: list[list[Any]], version: int, deltas: list[Any], _: Any) -> Any:
        if self._fail_sample is not None:
            raise_once_more(self._fail_sample)
        return [[self._rollout(Job.unpacked(job), version), len(jobs)] for job in jobs]

    def _rollout(self, job: Job, version: int) -> bytes:
        one = np.ones((1, len(job.rows), 1), np.float32)
        selection = np.ones((1, len(job.rows), 2, 1), bool)
        rollout = Rollout(job.rows, (selection,), one, {}, {}, one[0], version)
        return rollout.to_bytes()


def raise_once_more(count: Path) -> None:
    left = int(count.read_text())
    if left:
        count.write_text(str(left - 1))
        raise DataError("the disk of this node is away", where="shard 7")


def pool(*places: tuple[Path | None, Path | None], **config: object) -> RayBackend:
    settings = SamplerConfig.model_validate({"backend": "ray", "actors": len(places)} | config)
    remote = ray.remote(Actor).options(num_cpus=0.1, max_restarts=0)
    return RayBackend(settings, lambda number: remote.remote(*places[number]))


def collect(backend: RayBackend, wanted: int) -> list[Any]:
    found: list[Any] = []
    deadline = time.monotonic() + 40
    while len(found) < wanted:
        assert time.monotonic() < deadline
        found += backend.collect(0.5)
    return found


def submit(backend: RayBackend) -> None:
    backend.publish(Snapshot(5, ()))
    backend.submit([job(0)])


def job(shard: int) -> Job:
    return Job(0, shard, np.arange(2), selections=1, scored=False, thresholded=False)


def counting(path: Path, times: int) -> Path:
    path.write_text(str(times))
    return path


def test_shards_of_one_sampler_travel_together(tmp_path: Path) -> None:
    """Half of those that it may have; all of them are done again where it fails."""
    backend = pool((None, counting(tmp_path / "a", 1)), in_flight=8)
    backend.publish(Snapshot(5, ()))
    assert backend.room() == 8
    backend.submit([job(shard) for shard in range(6)])
    assert backend.room() == 2
    found = collect(backend, 6)
    assert [job.shard for job, _, _ in found] == list(range(6))
    assert [busy_s for _, _, busy_s in found] == [4] * 4 + [2] * 2
    assert backend.restarts == 1
    backend.close()


def test_data_that_cannot_be_read_cost_a_sampler_and_not_the_run(tmp_path: Path) -> None:
    backend = pool((None, counting(tmp_path / "a", 2)))
    submit(backend)
    ((_, rollout, _),) = collect(backend, 1)
    assert rollout.version == 5
    assert backend.restarts == 2
    backend.close()


def test_data_that_never_can_be_read_end_the_run_with_the_reason(tmp_path: Path) -> None:
    backend = pool((None, counting(tmp_path / "a", 99)), max_restarts=1)
    submit(backend)
    reason = r"sampler 0 \(process .*could not read its data: shard 7: the disk"
    with pytest.raises(SamplerError, match=reason):
        collect(backend, 1)
    backend.close()


def test_a_place_that_cannot_start_pauses_while_others_work(tmp_path: Path) -> None:
    backend = pool((None, None), (counting(tmp_path / "a", 99), None), max_restarts=0)
    for _ in range(3):
        submit(backend)
        collect(backend, 1)
    deadline = time.monotonic() + 20
    while backend.restarts < 2:  # it keeps trying, more and more seldom
        assert time.monotonic() < deadline
        backend.collect(0.5)
    assert backend.stats().samplers == 1
    counting(tmp_path / "a", 0)
    while backend.stats().samplers < 2:
        assert time.monotonic() < deadline + 20
        backend.collect(0.5)
    backend.close()


def test_a_cluster_without_gpus_is_named() -> None:
    config = SamplerConfig(gpus=0.5, backend="ray", start_timeout_s=1.0)
    actor = ray.remote(Actor).options(num_gpus=config.gpus)
    with pytest.raises(SamplerError, match=r"; 0 of its 0 GPUs are in use, a sampler needs 0\.5"):
        RayBackend(config, lambda _: actor.remote(None, None))
