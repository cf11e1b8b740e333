"""Who samples makes no difference, and a sampler's death, hang or error is no riddle."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import ray
from tiny_runs import Outcome, reports_of, stop_and_resume
from watched import WatchedRoles

from rss_rl.cluster.sampler_pool import RayBackend
from rss_rl.config import RunConfig
from rss_rl.errors import SamplerError
from rss_rl.training.run import RunEvent, train
from rss_rl.training.trainer import Updated

pytestmark = pytest.mark.usefixtures("shared_ray")


def pids(backend: RayBackend) -> list[int]:
    homes = ray.get([slot.actor.process.remote() for slot in backend._slots], timeout=30)
    return [home.pid for home in homes]


def train_with_ray(
    config: RunConfig, path: Path, on_update: Callable[[int, RayBackend], None] = lambda *_: None
) -> list[RunEvent]:
    """A whole run; `on_update` is called after each update that had samplers."""
    roles = WatchedRoles()
    events = []
    for event in train(config, path, roles=roles):
        events.append(event)
        if isinstance(event, Updated) and roles.samplers and roles.samplers._slots:
            on_update(event.update, roles.samplers)
    return events


@pytest.mark.parametrize("actors", [1, 2])
def test_the_same_numbers_with_any_samplers(
    actors: int, tiny: Callable[..., RunConfig], reference: Outcome, tmp_path: Path
) -> None:
    config = tiny(sampler={"backend": "ray", "actors": actors})
    train_with_ray(config, tmp_path / "run")
    Outcome.read(tmp_path / "run").assert_equals(reference)


def test_batches_of_few_tokens_and_an_average_do_not_mind_who_samples(
    tiny: Callable[..., RunConfig], tmp_path: Path
) -> None:
    """Nor being stopped: the batches of an update are cut alike, and so are their rollouts."""
    settings = {"batch_tokens": 90, "learner": {"weight_average": 0.9}}
    settings["evaluation"] = {"all_tokens": False}
    reports = reports_of(train(tiny(**settings), tmp_path / "here"))
    assert len({report.examples for report in reports}) > 2
    stop_and_resume(tiny(**settings), tmp_path / "again", 17)
    samplers = {"backend": "ray", "actors": 2}
    train_with_ray(tiny(**settings, sampler=samplers), tmp_path / "two")
    expected = Outcome.read(tmp_path / "here")
    for name in ("again", "two"):
        Outcome.read(tmp_path / name).assert_equals(expected)


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
    reports = [event for event in events if isinstance(event, Updated)]
    restarts = [report.scalars.get("sampler/restarts", 0) for report in reports]
    assert max(restarts) == 2
    Outcome.read(tmp_path / "run").assert_equals(reference)


def until(happened: Callable[[], bool], seconds: float = 20) -> None:
    """Wait for what another process does in its own time."""
    ends = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < ends
        time.sleep(0.1)


def test_a_hanging_sampler_is_replaced(
    tiny: Callable[..., RunConfig], reference: Outcome, tmp_path: Path
) -> None:
    stopped = []

    def stop(update: int, backend: RayBackend) -> None:
        if update == 13:
            stopped.append(pids(backend)[0])
            os.kill(stopped[0], signal.SIGSTOP)
            # Only now: starting a process may take longer.
            backend._config = tiny(sampler={"backend": "ray", "timeout_s": 2}).sampler
        elif stopped and stopped[0] not in {s.process.pid for s in backend._slots if s.process}:
            backend._config = config.sampler

    config = tiny(sampler={"backend": "ray", "actors": 2})
    train_with_ray(config, tmp_path / "run", stop)
    # Ray only asks a process to end, which one that is stopped does not hear in time.
    until(lambda: not Path(f"/proc/{stopped[0]}").exists(), seconds=2)
    Outcome.read(tmp_path / "run").assert_equals(reference)


def test_samplers_that_keep_dying_end_the_run(
    tiny: Callable[..., RunConfig], tmp_path: Path
) -> None:
    def kill(_: int, backend: RayBackend) -> None:
        for pid in pids(backend):
            os.kill(pid, signal.SIGKILL)

    config = tiny(sampler={"backend": "ray", "actors": 1, "max_restarts": 1})
    with pytest.raises(
        SamplerError,
        match=r"sampler 0 .process .* on host .*, node .* died: .*failure 2 .*max_restarts",
    ):
        train_with_ray(config, tmp_path / "run", kill)
