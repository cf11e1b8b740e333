"""Who samples makes no difference, and a sampler's death, hang or error is no riddle."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import ray
from tiny_runs import Outcome

from rss_rl.config import RunConfig
from rss_rl.data.store import Prepared, open_prepared
from rss_rl.errors import NonFiniteError, SamplerError
from rss_rl.runtime.backend import Backend
from rss_rl.runtime.ray_backend import RayBackend
from rss_rl.runtime.rollouts import SampleJob
from rss_rl.runtime.run import RunEvent, train
from rss_rl.runtime.session import UpdateReport
from rss_rl.runtime.snapshot import Snapshot, build_prepared_models

pytestmark = pytest.mark.timeout(100)


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    """One Ray for all tests of this file: starting it takes longer than any of them."""
    ray.init(num_cpus=4, include_dashboard=False, log_to_driver=False, configure_logging=False)
    yield
    ray.shutdown()


def pids(backend: RayBackend) -> list[int]:
    return ray.get([actor.ready.remote() for actor in backend._actors], timeout=30)


def train_with_ray(
    config: RunConfig, path: Path, on_update: Callable[[int, RayBackend], None] = lambda *_: None
) -> list[RunEvent]:
    """A whole run; `on_update` is called after each update that had samplers."""
    made: list[RayBackend] = []

    def backend(config: RunConfig, _: Prepared, data: str) -> Backend:
        made.append(RayBackend(config, data))
        return made[0]

    events = []
    for event in train(config, path, backend=backend):
        events.append(event)
        if isinstance(event, UpdateReport) and made and made[0]._actors:
            on_update(event.update, made[0])
    return events


@pytest.mark.parametrize("actors", [1, 2])
def test_the_same_numbers_with_any_samplers(
    actors: int, tiny: Callable[..., RunConfig], reference: Outcome, tmp_path: Path
) -> None:
    train_with_ray(tiny(sampler={"backend": "ray", "actors": actors}), tmp_path / "run")
    Outcome.read(tmp_path / "run").assert_equals(reference)


def test_other_numbers_with_another_seed(
    tiny: Callable[..., RunConfig], reference: Outcome, tmp_path: Path
) -> None:
    for _ in train(tiny(seed=1), tmp_path / "run"):
        pass
    other = Outcome.read(tmp_path / "run")
    for name in ("classifier/head.output.weight", "policy/modules_by_role.0.score.weight"):
        key = f"run/latest/{name}"
        assert (other.tensors[key] != reference.tensors[key]).any()
    assert other.report["splits"] != reference.report["splits"]


def test_a_killed_sampler_is_replaced(
    tiny: Callable[..., RunConfig], reference: Outcome, tmp_path: Path
) -> None:
    killed = []

    def kill(update: int, backend: RayBackend) -> None:
        if update in (13, 22):
            killed.append(pids(backend)[update % 2])
            os.kill(killed[-1], signal.SIGKILL)

    config = tiny(sampler={"backend": "ray", "actors": 2})
    events = train_with_ray(config, tmp_path / "run", kill)
    assert len(set(killed)) == 2
    reports = [event for event in events if isinstance(event, UpdateReport)]
    restarts = [report.scalars.get("sampler/restarts", 0) for report in reports]
    assert max(restarts) == 2
    Outcome.read(tmp_path / "run").assert_equals(reference)


def test_a_hanging_sampler_is_replaced(
    tiny: Callable[..., RunConfig], reference: Outcome, tmp_path: Path
) -> None:
    stopped = []

    def stop(update: int, backend: RayBackend) -> None:
        if update == 13:
            stopped.append(pids(backend)[0])
            os.kill(stopped[0], signal.SIGSTOP)
            # Only now: starting a process may take longer.
            backend._config = tiny(sampler={"backend": "ray", "actors": 2, "timeout_s": 2})
        elif update == 14:
            backend._config = config

    config = tiny(sampler={"backend": "ray", "actors": 2})
    train_with_ray(config, tmp_path / "run", stop)
    os.kill(stopped[0], signal.SIGKILL)  # Ray asks it to end, which it does once it goes on
    Outcome.read(tmp_path / "run").assert_equals(reference)


def test_samplers_that_keep_dying_end_the_run(
    tiny: Callable[..., RunConfig], tmp_path: Path
) -> None:
    def kill(_: int, backend: RayBackend) -> None:
        for pid in pids(backend):
            os.kill(pid, signal.SIGKILL)

    config = tiny(sampler={"backend": "ray", "actors": 1, "max_restarts": 1})
    with pytest.raises(SamplerError, match=r"sampler 0 died.*2 samplers failed.*max_restarts"):
        train_with_ray(config, tmp_path / "run", kill)


class TestErrors:
    """Of the code that runs within a sampler."""

    @pytest.fixture
    def backend(self, tiny: Callable[..., RunConfig], prepared: Path) -> Iterator[RayBackend]:
        made = RayBackend(tiny(sampler={"backend": "ray", "actors": 1}), prepared)
        yield made
        made.close()

    @pytest.fixture
    def snapshot(self, tiny: Callable[..., RunConfig], prepared: Path) -> Snapshot:
        return build_prepared_models(tiny(), open_prepared(prepared)).publish(1)

    def job(self) -> SampleJob:
        return SampleJob(3, 1, np.arange(4), selections=2, scored=True, thresholded=False)

    def test_an_expected_one_is_raised_as_it_is(
        self, backend: RayBackend, snapshot: Snapshot
    ) -> None:
        bad = replace(snapshot, weights=np.full_like(snapshot.weights, np.nan))
        with pytest.raises(NonFiniteError, match="log-likelihood"):
            backend.sample([self.job()], bad)

    def test_an_unexpected_one_says_where(self, backend: RayBackend, snapshot: Snapshot) -> None:
        bad = replace(snapshot, weights=snapshot.weights[:-1])
        with pytest.raises(SamplerError, match=r"update 3, shard 1: .*a snapshot of .* parameters"):
            backend.sample([self.job()], bad)
        assert backend.restarts == 0  # an error of the program is not repaired by a new process

    def test_at_the_start_it_is_shown(self, tiny: Callable[..., RunConfig], tmp_path: Path) -> None:
        with pytest.raises(SamplerError, match="could not be started: .*is no prepared directory"):
            RayBackend(tiny(sampler={"backend": "ray"}), tmp_path)
