"""What goes wrong on a cluster, done for real while samplers run ahead: training continues.

Each example of an epoch is used once, counted by its row; errors name sampler, node and cause.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import fake_sampler
import numpy as np
import pytest
import ray
from fake_sampler import FakeSampler
from ray.cluster_utils import Cluster
from ray_nodes import own_ray
from tiny_runs import assert_each_example_once_an_epoch, reports_of
from watched import WatchedRoles

from rss_rl.cluster.sampler_actor import MAIL
from rss_rl.cluster.sampler_pool import RayBackend
from rss_rl.config import RunConfig, SamplerConfig
from rss_rl.logs.events import NO_LOG
from rss_rl.reward_models.reward_model import Rewards
from rss_rl.rollouts.rollout import Job, Rollout
from rss_rl.rollouts.snapshot import Snapshot
from rss_rl.training.run import RunEvent, train
from rss_rl.training.trainer import Updated

ray.cloudpickle.register_pickle_by_value(fake_sampler)

ASYNCHRONOUS = {"backend": "ray", "actors": 2, "max_policy_lag": 4}
ALONE = {"all_tokens": False}
"""Without the comparison, which has no samplers."""
QUICK_TO_NOTICE = {
    "health_check_initial_delay_ms": 1000,
    "health_check_period_ms": 1000,
    "health_check_failure_threshold": 3,
}


def train_harmed(
    config: RunConfig, path: Path, after: dict[int, Callable[[WatchedRoles], None]]
) -> list[RunEvent]:
    """The whole run; `after` says what to do after which update, once."""
    roles, events = WatchedRoles(), []
    for event in train(config, path, roles=roles):
        events.append(event)
        if isinstance(event, Updated) and event.update in after:
            after.pop(event.update)(roles)
    assert not after, "a fault was never made"
    return events


def samplers_of(roles: WatchedRoles) -> RayBackend:
    assert roles.samplers is not None
    return roles.samplers


def kill_samplers(backend: RayBackend, how_many: int) -> None:
    """SIGKILL samplers, those at work on a shard first."""
    wait_for(backend, 2)
    backend._dispatch()
    slots = sorted(backend._slots, key=lambda slot: -len(slot.jobs))
    assert slots[0].jobs, "no sampler was at work"
    for slot in slots[:how_many]:
        assert slot.process is not None
        os.kill(slot.process.pid, signal.SIGKILL)


class TestOnOneMachine:
    @pytest.fixture(scope="class", autouse=True)
    @classmethod
    def cluster(cls) -> Iterator[None]:
        with own_ray(4, object_store_memory=100 * 2**20):
            yield

    def test_all_killed_at_work(self, tiny: Callable[..., RunConfig], tmp_path: Path) -> None:
        # Later, all jobs of the phase may have been given and collected.
        harm = {11: lambda roles: kill_samplers(samplers_of(roles), 2)}
        events = train_harmed(tiny(sampler=ASYNCHRONOUS, evaluation=ALONE), tmp_path / "run", harm)
        reports = reports_of(events)
        assert_each_example_once_an_epoch(reports)
        assert reports[-1].scalars["sampler/restarts"] == 2

    def test_object_store_nearly_full(self, tiny: Callable[..., RunConfig], tmp_path: Path) -> None:
        held = []

        def fill(_: WatchedRoles) -> None:
            held.extend(ray.put(np.zeros(15 * 2**20, np.uint8)) for _ in range(6))

        events = train_harmed(
            tiny(sampler=ASYNCHRONOUS, evaluation=ALONE), tmp_path / "run", {12: fill}
        )
        reports = reports_of(events)
        assert_each_example_once_an_epoch(reports)
        assert reports[-1].scalars["sampler/restarts"] == 0


class TestOnSeveralNodes:
    @pytest.fixture
    def cluster(self) -> Iterator[Cluster]:
        ray.shutdown()
        made = Cluster(
            initialize_head=True,
            head_node_args={
                "num_cpus": 1,
                "dashboard_port": None,  # any: the usual one may be taken
                "_system_config": QUICK_TO_NOTICE,
            },
        )
        ray.init(address=made.address, log_to_driver=False, configure_logging=False)
        yield made
        ray.shutdown()
        made.shutdown()

    def test_answers_on_another_node_count_while_the_learner_is_busy(
        self, cluster: Cluster
    ) -> None:
        """Whole rollouts wait there while dev is scored for longer than a sampler may take."""
        cluster.add_node(num_cpus=4, resources={"far": 4})
        many = np.zeros((1, 2, 2, 4 * 10**6), bool)  # more than Ray sends along with an answer
        one = np.ones((1, 2, 1), np.float32)
        pattern = Rollout(np.arange(2), (many,), one, Rewards({}, {}), None, 0)
        remote = ray.remote(
            num_cpus=0.1, max_restarts=0, concurrency_groups={MAIL: 1}, resources={"far": 1}
        )(FakeSampler)
        settings = SamplerConfig.model_validate({"backend": "ray", "actors": 4, "timeout_s": 4.0})
        backend = RayBackend(settings, lambda _: remote.remote(0.0, pattern), NO_LOG)
        wait_for(backend, 4)
        backend.publish(Snapshot(0, ()))
        backend.submit([Job(0, shard, np.arange(2), 1, False, False) for shard in range(4)])
        time.sleep(6.0)
        answers = 0
        while answers < 4:
            answers += len(backend.collect(0.5))
        assert backend.stats().restarts == 0
        backend.close()

    def test_a_node_is_lost_and_another_one_joins(
        self, cluster: Cluster, tiny: Callable[..., RunConfig], tmp_path: Path
    ) -> None:
        second = cluster.add_node(num_cpus=1)
        alive = []

        def lose(roles: WatchedRoles) -> None:
            samplers = samplers_of(roles)
            wait_for(samplers, 2)
            alive.append(len({slot.process.node for slot in samplers._live() if slot.process}))
            cluster.remove_node(second, allow_graceful=False)

        def add(roles: WatchedRoles) -> None:
            samplers = samplers_of(roles)
            alive.append(len(samplers._live()))
            cluster.add_node(num_cpus=1)
            wait_for(samplers, 2)
            alive.append(len(samplers._live()))

        config = tiny(sampler=ASYNCHRONOUS | {"timeout_s": 30}, evaluation=ALONE)
        reports = reports_of(train_harmed(config, tmp_path / "run", {12: lose, 19: add}))
        assert_each_example_once_an_epoch(reports)
        assert alive == [2, 1, 2]
        # A replacement may be sent to the lost node before the cluster knows that it is lost.

        assert 1 <= reports[-1].scalars["sampler/restarts"] <= 3


def wait_for(samplers: RayBackend, alive: int) -> None:
    deadline = time.monotonic() + 100
    while len(samplers._live()) < alive:
        assert time.monotonic() < deadline, "the sampler never joined"
        # As if they had not been done.
        samplers.submit([job for job, *_ in samplers.collect(0.2)])
