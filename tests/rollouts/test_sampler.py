"""A job's rollout depends on the job and the snapshot alone, and its log-probs are the policy's."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from rss_rl.config import RunConfig
from rss_rl.data.store import Prepared
from rss_rl.errors import ConfigError
from rss_rl.models.inputs import tensor_batch
from rss_rl.reading.models import Models, build_prepared_models
from rss_rl.rollouts.backend import LocalBackend
from rss_rl.rollouts.rollout import Job, join_rollouts
from rss_rl.rollouts.sampler import Sampler
from rss_rl.rollouts.snapshot import Delta, Publisher, Snapshot

_ROWS = np.array([4, 0, 9, 30, 17])
_JOB = Job(update=7, shard=0, rows=_ROWS, selections=3, scored=True, thresholded=True)


def _sampler(config: RunConfig, prepared: Prepared) -> tuple[Sampler, Models]:
    models = build_prepared_models(config, prepared)
    sampler = Sampler(config, models, prepared.split("train"))
    sampler.load(Publisher(models).publish(11))
    return sampler, models


def test_equal_jobs_give_equal_rollouts_and_other_updates_differ(
    tiny_config: RunConfig, tiny: Prepared
) -> None:
    sampler, _ = _sampler(tiny_config, tiny)
    first, again = sampler.sample(_JOB), sampler.sample(_JOB)
    other = sampler.sample(replace(_JOB, update=8))
    assert first.to_bytes() == again.to_bytes()
    assert not np.array_equal(first.selections[0], other.selections[0])
    assert first.version == 11


def test_other_weights_under_the_same_version_are_loaded(
    tiny_config: RunConfig, tiny: Prepared
) -> None:
    """As after a phase that went back to its best weights."""
    sampler, models = _sampler(tiny_config, tiny)
    backend = LocalBackend(sampler)
    first = Publisher(models).publish(3)
    moved = [delta._replace(weights=delta.weights + np.float32(0.3)) for delta in first.deltas]
    other = replace(first, deltas=tuple(moved))
    rewards = []
    for snapshot in (first, other):
        backend.publish(snapshot)
        backend.submit([_JOB])
        rewards.append(backend.collect(0.0)[0][1].terms.by_sentence)
    assert np.abs(rewards[0] - rewards[1]).max() > 1e-3


def test_shards_give_the_rollout_of_the_whole(tiny_config: RunConfig, tiny: Prepared) -> None:
    sampler, _ = _sampler(tiny_config, tiny)
    whole = sampler.sample(_JOB)
    parts = [
        sampler.sample(replace(_JOB, shard=n, rows=rows))
        for n, rows in enumerate((_ROWS[:2], _ROWS[2:]))
    ]
    joined = join_rollouts(parts)
    for mine, theirs in zip(whole.selections, joined.selections, strict=True):
        np.testing.assert_array_equal(mine, theirs)
    np.testing.assert_allclose(whole.terms.by_sentence, joined.terms.by_sentence, atol=1e-6)
    np.testing.assert_allclose(whole.thresholded, joined.thresholded, atol=1e-6)


def test_log_probs_and_rewards_are_those_of_the_modules(
    tiny_config: RunConfig, tiny: Prepared
) -> None:
    sampler, models = _sampler(tiny_config, tiny)
    rollout = sampler.sample(replace(_JOB, bitwise=True))
    assert sampler.sample(_JOB).bit_log_prob == ()
    batch = tiny.split("train").batch(_ROWS)
    tensors = tensor_batch(batch, torch.device("cpu"))
    models.classifier.eval()
    with torch.no_grad():
        for slot, inputs in enumerate(models.policy_inputs(tensors)):
            selection = torch.from_numpy(rollout.selections[slot])
            assert not (selection & ~inputs.valid[:, None]).any()
            expected = models.policy(inputs).evaluate(selection).log_prob
            np.testing.assert_allclose(rollout.bit_log_prob[slot], expected, atol=1e-5)
            summed = expected.sum((-1, -2))
            np.testing.assert_allclose(rollout.log_prob[..., slot], summed, atol=1e-5)
        for k in range(3):
            chosen = [torch.from_numpy(s[k]) for s in rollout.selections]
            logits = models.classifier(tensors.tokens, tensors.valid, chosen)
            losses = models.classifier.losses(logits, tensors.labels)
            np.testing.assert_allclose(
                rollout.terms.scores["log_likelihood"][k], -losses, atol=1e-5
            )
            for slot, valid in enumerate(batch.valid):
                share = rollout.selections[slot][k].sum((1, 2)) / valid.sum(1)
                cost = tiny_config.reward.sparsity_cost * share
                np.testing.assert_allclose(
                    rollout.terms.costs["sparsity_cost"][k, :, slot], cost, atol=1e-6
                )


def test_unscored_jobs_carry_no_rewards(tiny_config: RunConfig, tiny: Prepared) -> None:
    sampler, _ = _sampler(tiny_config, tiny)
    job = replace(_JOB, scored=False, thresholded=False)
    rollout = sampler.sample(job)
    assert not rollout.terms.scores
    assert rollout.thresholded is None
    scored = sampler.sample(_JOB)
    np.testing.assert_array_equal(rollout.selections[0], scored.selections[0])


def test_a_sampler_needs_a_snapshot_of_its_own_models(
    tiny_config: RunConfig, tiny: Prepared
) -> None:
    models = build_prepared_models(tiny_config, tiny)
    sampler = Sampler(tiny_config, models, tiny.split("train"))
    with pytest.raises(ValueError, match="first snapshot"):
        sampler.sample(_JOB)
    with pytest.raises(ValueError, match=r"a snapshot of \(3,\) for"):
        sampler.load(Snapshot(0, (Delta("policy", np.zeros(3, np.float32)),)))


def test_a_thousand_threads_on_a_few_cores_are_refused(
    tiny_config: RunConfig, tiny: Prepared
) -> None:
    many = tiny_config.sampler.model_copy(update={"threads": 1000})
    config = tiny_config.model_copy(update={"sampler": many})
    with pytest.raises(ConfigError, match=r"sampler.threads: 1000 threads on"):
        _sampler(config, tiny)
