"""Whatever order samplers answer in, each update gets its own shards, once, within the lag."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from rss_rl.config import SamplerConfig
from rss_rl.reward_models.reward_model import Rewards
from rss_rl.rollouts.backend import BackendStats, Done
from rss_rl.rollouts.rollout import Job, Rollout
from rss_rl.rollouts.snapshot import Snapshot
from rss_rl.training.pipeline import RolloutPipeline

SHARDS = 2


def jobs(update: int) -> list[Job]:
    rows = [np.array([10 * update + shard]) for shard in range(SHARDS)]
    return [
        Job(update, shard, rows[shard], selections=1, scored=False, thresholded=False)
        for shard in range(SHARDS)
    ]


def rollout(job: Job, version: int) -> Rollout:
    ones = np.ones((1, 1, 1), np.float32)
    return Rollout(
        job.rows,
        (np.ones((1, 1, 2, 1), bool),),
        ones,
        # So that the joined rollout tells it of each shard.
        Rewards({"score": version * ones[..., 0]}, {"sparsity_cost": ones}),
        None,
        version,
    )


class ScriptedBackend:
    """Answers at once and in order or, with `seed`, in any order and now and then with nothing."""

    def __init__(self, seed: int | None = None) -> None:
        self.draw = None if seed is None else np.random.default_rng(seed)
        self.version = -1
        self.waiting: list[tuple[Job, int]] = []
        self.submitted: list[tuple[int, int, int]] = []  # update, shard, version
        self.closed = False

    def publish(self, snapshot: Snapshot) -> None:
        self.version = snapshot.version

    def forget(self) -> None:
        self.waiting.clear()

    def submit(self, jobs: Sequence[Job]) -> None:
        self.submitted += [(job.update, job.shard, self.version) for job in jobs]
        self.waiting += [(job, self.version) for job in jobs]

    def collect(self, timeout_s: float) -> list[Done]:
        count = len(self.waiting)
        if self.draw is not None:
            self.waiting = [self.waiting[place] for place in self.draw.permutation(count)]
            count = int(self.draw.integers(0, count + 1))
        done, self.waiting = self.waiting[:count], self.waiting[count:]
        return [(job, rollout(job, version), 0.5) for job, version in done]

    def stats(self) -> BackendStats:
        return BackendStats(samplers=1, restarts=0)

    def close(self) -> None:
        self.closed = True


def snapshot(version: int) -> Snapshot:
    return Snapshot(version, ())


def make(backend: ScriptedBackend, **config: object) -> RolloutPipeline:
    return RolloutPipeline(lambda: backend, SamplerConfig.model_validate(config))


def supply(pipeline: RolloutPipeline, update: int, last: int = 10**9) -> None:
    """Give the jobs of all updates that are admitted, up to the last of a phase."""
    for admitted in pipeline.admitted(update):
        if admitted <= last:
            pipeline.give(admitted, jobs(admitted))


def take(pipeline: RolloutPipeline, update: int) -> tuple[Rollout, dict[str, float]]:
    supply(pipeline, update)
    return pipeline.take(update)


def versions(rollout: Rollout) -> list[int]:
    """Of the shards, in their order."""
    return [int(version) for version in rollout.terms.scores["score"][0]]


@given(lag=st.integers(0, 4), seed=st.integers(0, 2**32 - 1))
def test_nothing_is_lost_or_used_twice_or_too_old(lag: int, seed: int) -> None:
    backend = ScriptedBackend(seed)
    pipeline = make(backend, max_policy_lag=lag)
    for update in range(8):
        pipeline.publish(snapshot(update))
        rollout, scalars = take(pipeline, update)
        assert rollout.rows.tolist() == [10 * update, 10 * update + 1]
        lags = [update - version for version in versions(rollout)]
        assert min(lags) >= 0
        assert max(lags) <= lag
        assert scalars["policy/lag_max"] == max(lags)
        assert scalars["policy/lag_min"] == min(lags)
        assert scalars["policy/lag"] == np.mean(lags)
        assert scalars["pipeline/in_flight"] <= SHARDS * lag
    assert max(Counter(place[:2] for place in backend.submitted).values()) == 1


def test_synchronous_training_samples_each_update_with_its_own_version() -> None:
    backend = ScriptedBackend()
    pipeline = make(backend)
    for update in range(4):
        pipeline.publish(snapshot(update))
        rollout, _ = take(pipeline, update)
        assert versions(rollout) == [update] * SHARDS
    assert [place[2] - place[0] for place in backend.submitted] == [0] * 4 * SHARDS


def test_samplers_run_ahead_as_far_as_lag_and_phase_admit() -> None:
    backend = ScriptedBackend()
    pipeline = make(backend, max_policy_lag=5)
    pipeline.publish(snapshot(0))
    supply(pipeline, 0, last=2)
    assert [place[0] for place in backend.submitted] == [0, 0, 1, 1, 2, 2]


def test_what_was_asked_for_before_the_phase_changed_is_dropped() -> None:
    backend = ScriptedBackend()
    pipeline = make(backend, max_policy_lag=4)
    pipeline.publish(snapshot(0))
    supply(pipeline, 0)
    pipeline.forget()
    assert pipeline.published is None
    pipeline.publish(snapshot(1))
    rollout, _ = take(pipeline, 1)
    assert versions(rollout) == [1] * SHARDS  # version 0 had come for update 1 as well


def test_idle_time_is_what_samplers_did_not_work() -> None:
    backend = ScriptedBackend()
    pipeline = make(backend)
    pipeline.publish(snapshot(0))
    _, scalars = take(pipeline, 0)
    assert scalars["sampler/busy_s"] == 0.5 * SHARDS
    assert scalars["sampler/idle_share"] == 0.0  # more work than time, and no less than none


def test_a_warm_up_is_nobodys_idleness() -> None:
    pipeline = make(ScriptedBackend())
    time.sleep(3.0)
    pipeline.publish(snapshot(0))
    assert take(pipeline, 0)[1]["sampler/idle_share"] == 0.0


def test_closing_releases_the_samplers() -> None:
    backend = ScriptedBackend()
    pipeline = make(backend)
    pipeline.start()
    pipeline.close()
    pipeline.close()
    assert backend.closed
