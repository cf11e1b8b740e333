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
from rss_rl.cluster.sampler_actor import MAIL, Mailbox
from rss_rl.cluster.sampler_pool import RayBackend
from rss_rl.config import SamplerConfig
from rss_rl.errors import DataError, NonFiniteError, SamplerError
from rss_rl.logs.events import NO_LOG, EventSink, Level
from rss_rl.reward_models.reward_model import Rewards
from rss_rl.rollouts.rollout import Job, Rollout
from rss_rl.rollouts.snapshot import Snapshot, StoredSnapshot

ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])


pytestmark = pytest.mark.usefixtures("shared_ray")


class Actor:
    """Fails as many times as the file says, all actors together; waits while `gate` exists."""

    def __init__(
        self, fail_start: Path | None, fail_sample: Path | None, gate: Path | None = None
    ) -> None:
        self._fail_sample, self._gate = fail_sample, gate
        self._mailbox = Mailbox(20.0)
        if fail_start is not None:
            raise_once_more(fail_start)

    def process(self) -> ActorProcess:
        return this_process()

    @ray.method(concurrency_group=MAIL)
    def publish(self, number: int, snapshot: StoredSnapshot) -> None:
        self._mailbox.put(number, snapshot)

    def sample(self, job: list[Any], number: int) -> tuple[bytes, float]:
        snapshot = self._mailbox.take(number)
        if self._fail_sample is not None:
            raise_once_more(self._fail_sample)
        while self._gate is not None and self._gate.exists():
            time.sleep(0.05)
        return rollout(Job.unpacked(job), snapshot.version).to_bytes(), 0.1


def rollout(job: Job, version: int) -> Rollout:
    one = np.ones((1, len(job.rows), 1), np.float32)
    selection = np.ones((1, len(job.rows), 2, 1), bool)
    return Rollout(job.rows, (selection,), one, Rewards({}, {}), None, version)


def raise_once_more(count: Path) -> None:
    left = int(count.read_text())
    if left < 0:
        raise NonFiniteError("the policy's log-prob is nan", where="row 7")
    if left:
        count.write_text(str(left - 1))
        raise DataError("the disk of this node is away", where="shard 7")


def pool(*places: tuple[Path | None, ...], log: EventSink = NO_LOG, **config: object) -> RayBackend:
    settings = SamplerConfig.model_validate({"backend": "ray", "actors": len(places)} | config)
    remote = ray.remote(num_cpus=0.1, max_restarts=0, concurrency_groups={MAIL: 1})(Actor)
    return RayBackend(settings, lambda number: remote.remote(*places[number]), log)


def collect(backend: RayBackend, wanted: int) -> list[Any]:
    found: list[Any] = []
    deadline = time.monotonic() + 90
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


def full(backend: RayBackend, samplers: int) -> None:
    """Wait until so many samplers have started."""
    deadline = time.monotonic() + 90
    while backend.stats().samplers < samplers:
        assert time.monotonic() < deadline
        backend.collect(0.5)


def test_a_job_starts_with_the_newest_snapshot(tmp_path: Path) -> None:
    """Not with that of its submission, while the sampler was busy; nor with an older one."""
    gate = counting(tmp_path / "gate", 0)
    backend = pool((None, None, gate), max_policy_lag=4)
    backend.publish(Snapshot(5, ()))
    backend.submit([job(0), job(1), job(2)])
    time.sleep(0.5)  # the first one is at work, the second at the sampler, the third here
    backend.publish(Snapshot(6, ()))
    time.sleep(0.5)
    gate.unlink()
    found = collect(backend, 3)
    assert [(job.shard, rollout.version) for job, rollout, _ in found] == [(0, 5), (1, 6), (2, 6)]
    for version in range(7, 27):  # no older one, even if the sampler has nothing else to do
        backend.publish(Snapshot(version, ()))
        backend.submit([job(0)])
        ((_, rollout, _),) = collect(backend, 1)
        assert rollout.version == version
    backend.close()


def test_samplers_take_jobs_as_they_become_free_and_drop_what_is_forgotten(tmp_path: Path) -> None:
    gate = counting(tmp_path / "gate", 0)
    backend = pool((None, None, gate), (None, None))
    full(backend, 2)
    backend.publish(Snapshot(5, ()))
    backend.submit([job(shard) for shard in range(8)])
    assert {job.shard for job, *_ in collect(backend, 7)} == set(range(1, 8))
    backend.submit([job(8)])
    backend.forget()
    gate.unlink()
    while any(slot.jobs for slot in backend._slots):  # those at work answer, and nobody waits
        assert backend.collect(0.5) == []
    backend.close()


def test_a_stragglers_jobs_are_sent_again_and_the_first_answer_counts(tmp_path: Path) -> None:
    gate, log = counting(tmp_path / "gate", 0), Events()
    backend = pool((None, None), (None, None, gate), log=log)
    full(backend, 2)
    backend.publish(Snapshot(5, ()))
    backend.submit([job(shard) for shard in range(4)])
    assert {job.shard for job, *_ in collect(backend, 4)} == {0, 1, 2, 3}
    resent = [fields for name, fields in log.written if name == "job_resent"]
    assert [fields["job"] for fields in resent] == ["update 1, shard 1"]
    assert all(fields["waited_s"] > 1 for fields in resent)
    gate.unlink()
    while any(slot.jobs for slot in backend._slots):  # the straggler answers, too late
        assert backend.collect(0.5) == []
    counting(gate, 0)
    backend.submit([job(0), job(1)])
    collect(backend, 2)
    straggler = backend._slots[1]
    assert straggler.jobs
    ray.kill(straggler.actor)
    while straggler.jobs:
        assert backend.collect(0.5) == []
    assert not backend._waiting  # what has been answered is not done again
    backend.close()


class Events:
    """A log in memory."""

    def __init__(self) -> None:
        self.written: list[tuple[str, dict[str, Any]]] = []

    def write(self, event: str, level: Level = "info", **fields: Any) -> None:
        self.written.append((event, fields))


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


def test_an_error_of_ours_is_raised_with_its_origin(tmp_path: Path) -> None:
    backend = pool((None, counting(tmp_path / "a", -1)))
    submit(backend)
    message = r"sampler 0 .process .* node .*, update 1, shard 0: row 7: the policy's"
    with pytest.raises(NonFiniteError, match=message):
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
    actor = ray.remote(num_gpus=config.gpus, concurrency_groups={MAIL: 1})(Actor)
    with pytest.raises(
        SamplerError, match=r"; 0 of the cluster's 0 GPUs are in use, a sampler needs 0\.5"
    ):
        RayBackend(config, lambda _: actor.remote(None, None))
