"""Snapshots part by part: what did not change stays where it is, and nothing is missing."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from rss_rl.config import OptimizerConfig, RunConfig
from rss_rl.data.store import Prepared
from rss_rl.errors import ConfigError
from rss_rl.learners.phases import Turn
from rss_rl.models.classifier import Classifier
from rss_rl.reading.models import Models, build_prepared_models
from rss_rl.rollouts.backend import LocalBackend
from rss_rl.rollouts.rollout import Job
from rss_rl.rollouts.sampler import Sampler
from rss_rl.rollouts.snapshot import (
    CLASSIFIER,
    PARTS,
    POLICY,
    WORDS,
    Delta,
    Parts,
    Publisher,
    Snapshot,
    trainable_parts,
)
from rss_rl.training.learner import LocalLearner

_WARM_UP = Turn(supervised=True, policy=False, sampled=False)
_FROZEN = Turn(supervised=False, policy=True, sampled=True)
_ROWS = np.arange(6)


@pytest.fixture
def models(tiny_config: RunConfig, tiny: Prepared) -> Models:
    return build_prepared_models(tiny_config, tiny)


@pytest.fixture
def other(tiny_config: RunConfig, tiny: Prepared) -> Models:
    """Of the same configuration, with other weights."""
    return build_prepared_models(tiny_config.model_copy(update={"seed": 1}), tiny)


def add_(models: Models, part: str, amount: float) -> None:
    with torch.no_grad():
        for parameter in trainable_parts(models)[part]:
            parameter.add_(amount)


def assert_same(one: Models, two: Models) -> None:
    pairs = zip(one.modules.values(), two.modules.values(), strict=True)
    for mine, theirs in pairs:
        for key, value in mine.state_dict().items():
            assert torch.equal(value, theirs.state_dict()[key]), key


def parts(snapshot: Snapshot) -> list[str]:
    return [delta.part for delta in snapshot.deltas]


def frozen(deltas: Sequence[Delta]) -> tuple[Delta, ...]:
    """Read-only, as Ray hands them out."""
    for delta in deltas:
        for array in delta[1:]:
            if isinstance(array, np.ndarray):
                array.flags.writeable = False
    return tuple(deltas)


def test_initial_weights_are_the_seeds_whatever_other_threads_build(
    tiny_config: RunConfig, tiny: Prepared, models: Models, other: Models
) -> None:
    """They are drawn from torch's generator, which all threads share."""
    seeds = [tiny_config.seed, 1] * 10
    configs = [tiny_config.model_copy(update={"seed": seed}) for seed in seeds]
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as pool:
            built = list(pool.map(build_prepared_models, configs, [tiny] * len(configs)))
    finally:
        sys.setswitchinterval(before)
    for found, wanted in zip(built, [models, other] * 10, strict=True):
        assert_same(found, wanted)


def test_all_parameters_are_in_one_part(models: Models) -> None:
    every = [id(p) for part in trainable_parts(models).values() for p in part]
    assert len(every) == len(set(every))
    assert set(every) == {id(p) for p in models.parameters()}


def test_snapshots_round_trip_and_loaded_or_copied_ones_do_not_alias(
    models: Models, other: Models
) -> None:
    snapshot = Publisher(models).publish(0)
    assert parts(snapshot) == list(PARTS)
    least = 4 * sum(p.numel() for p in models.parameters())
    assert least <= snapshot.bytes < least + 64 * len(models.parameters())
    kept = [delta.copied() for delta in snapshot.deltas]
    Parts(other).load(Snapshot(0, frozen(snapshot.deltas)))
    assert_same(models, other)
    before = [p.clone() for p in other.parameters()]
    for part in PARTS:
        add_(models, part, 1.0)
    again = Publisher(other).publish(1)
    for mine, theirs in zip(again.deltas, kept, strict=True):
        np.testing.assert_array_equal(mine.weights, theirs.weights)
    assert all(torch.equal(a, b) for a, b in zip(before, other.parameters(), strict=True))


@pytest.mark.parametrize("part", PARTS)
def test_the_part_that_changed_travels_alone(models: Models, other: Models, part: str) -> None:
    publisher = Publisher(models)
    Parts(other).load(publisher.publish(0, full=True))
    assert publisher.publish(1, full=False).deltas == ()
    add_(models, part, 0.5)
    publisher.note(part)
    snapshot = publisher.publish(2, full=False)
    assert parts(snapshot) == [part]
    own = trainable_parts(models)[part]
    assert 0 <= snapshot.bytes - 4 * sum(p.numel() for p in own) < 64 * len(own)
    Parts(other).load(snapshot)
    assert_same(models, other)
    assert parts(publisher.publish(3, full=True)) == list(PARTS)


def test_of_word_vectors_the_rows_that_changed_travel(models: Models, other: Models) -> None:
    publisher, size = Publisher(models), models.classifier.embedding.size
    Parts(other).load(publisher.publish(0, full=True))
    for rows in ([5, 2], [2, 7]):
        with torch.no_grad():
            models.classifier.embedding.trainable[rows] += 0.5
        publisher.note(WORDS, torch.tensor(rows))
    snapshot = publisher.publish(1, full=False)
    (delta,) = snapshot.deltas
    assert delta.rows is not None
    assert delta.rows.tolist() == [2, 5, 7]
    assert snapshot.bytes == 3 * (4 * size + 8)
    Parts(other).load(Snapshot(1, frozen(snapshot.deltas)))
    assert_same(models, other)


class Normed(nn.Module):
    """Keeps a running mean of what it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(2)


def test_running_statistics_which_samplers_would_lack_are_refused(
    tiny_config: RunConfig, tiny: Prepared, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rss_rl.reading.models.build_policy", lambda *_: Normed())
    with pytest.raises(ConfigError, match="BatchNorm1d keeps running statistics"):
        build_prepared_models(tiny_config, tiny)


def test_snapshots_of_other_modules_are_refused(models: Models) -> None:
    size = models.classifier.embedding.size
    for delta, message in (
        (Delta(POLICY, np.zeros(3, np.float32)), r"a snapshot of \(3,\) for"),
        (Delta(WORDS, np.zeros(size + 1, np.float32), np.array([1])), "word vectors"),
    ):
        with pytest.raises(ValueError, match=message):
            Parts(models).load(Snapshot(0, (delta,)))


def learning(config: RunConfig, **supervised: Any) -> RunConfig:
    settings = OptimizerConfig.model_validate(supervised)
    return config.model_copy(
        update={"learner": config.learner.model_copy(update={"supervised": settings})}
    )


def test_a_learner_publishes_what_it_learnt(tiny_config: RunConfig, tiny: Prepared) -> None:
    config = learning(tiny_config, name="adadelta")
    learner = LocalLearner(config, tiny)
    backend = LocalBackend(
        Sampler(config, build_prepared_models(config, tiny), tiny.split("train"))
    )
    backend.publish(learner.publish(0))
    backend.submit([Job(0, 0, _ROWS, selections=4, scored=True, thresholded=False)])
    rollout = backend.collect(0.0)[0][1]
    learner.update(0, _ROWS, _FROZEN, rollout)
    assert parts(learner.publish(1, full=False)) == [POLICY]
    learner.update(1, _ROWS, _WARM_UP)
    after = learner.publish(2, full=False)
    assert parts(after) == [CLASSIFIER, WORDS]
    met = np.unique(np.concatenate([t.ravel() for t in tiny.split("train").batch(_ROWS).tokens]))
    rows = after.deltas[1].rows
    assert rows is not None
    assert set(rows.tolist()) <= set(met.tolist())
    saved = {name: value.numpy().copy() for name, value in learner.tensors().items()}
    learner.load_tensors(saved)
    assert parts(learner.publish(3, full=False)) == list(PARTS)


def test_a_job_that_waits_is_sampled_with_the_snapshot_it_was_submitted_with(
    tiny_config: RunConfig, tiny: Prepared, models: Models
) -> None:
    """However many publications, whole or in rows, came in between."""

    def sampler() -> Sampler:
        return Sampler(tiny_config, build_prepared_models(tiny_config, tiny), tiny.split("train"))

    backend, publisher, expected = LocalBackend(sampler()), Publisher(models), []
    draw = np.random.default_rng(0)
    for version in range(12):
        for part in draw.permutation(PARTS)[:2] if version else PARTS:
            if part == WORDS and version:
                words = models.classifier.embedding.trainable
                rows = torch.from_numpy(draw.permutation(len(words))[:9])
                with torch.no_grad():
                    words[rows] += float(draw.normal())
                publisher.note(WORDS, rows)
            else:
                add_(models, part, 0.05 * float(draw.normal()))
                publisher.note(part)
        backend.publish(publisher.publish(version, full=version in (0, 6)))
        if version % 3 == 2:
            continue  # nobody samples with this one
        job = Job(version, 0, _ROWS, selections=2, scored=True, thresholded=True)
        backend.submit([job])
        fresh = sampler()
        fresh.load(Publisher(models).publish(version))
        expected.append(fresh.sample(job))
    found = [backend.collect(0.0)[0][1] for _ in expected]
    assert [rollout.to_bytes() for rollout in found] == [each.to_bytes() for each in expected]
    assert not np.array_equal(found[0].terms.score, found[1].terms.score)


def test_word_vectors_that_stay_fixed_never_travel(models: Models) -> None:
    classifier: Classifier = models.classifier
    sizes = {delta.part: delta.bytes for delta in Publisher(models).publish(0).deltas}
    assert sizes[WORDS] == 4 * classifier.embedding.trainable.numel()
