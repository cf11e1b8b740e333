"""Whole runs with the policies and encoders that are not the default, stale rollouts included."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from trainers import trainer_of

from rss_rl.config import EncoderChoice, PolicyConfig, PolicyUpdateConfig, RunConfig
from rss_rl.data.store import Prepared
from rss_rl.reading.models import build_prepared_models
from rss_rl.reading.trained_runs import open_models
from rss_rl.rollouts.backend import LocalBackend
from rss_rl.rollouts.sampler import Sampler
from rss_rl.rollouts.snapshot import Snapshot
from rss_rl.training.run import train


class FirstSnapshot(LocalBackend):
    """A backend that keeps sampling with the first snapshot it was given."""

    def __init__(self, config: RunConfig, prepared: Prepared) -> None:
        models = build_prepared_models(config, prepared)
        super().__init__(Sampler(config, models, prepared.split("train")))
        self._first = True

    def publish(self, snapshot: Snapshot) -> None:
        if self._first:
            super().publish(snapshot)
        self._first = False


POLICIES: dict[str, dict[str, Any]] = {
    "iterative": {"name": "iterative"},
    "rss over gru": {"options": {"context": "gru"}},
    "rss that reads the example": {"reads": "example"},
}


RATIOS = {
    "policy/ratio_mean",
    "policy/ratio_max",
    "policy/ratio_clipped",
    "policy/effective_sample_share",
}


def with_policy(config: RunConfig, settings: dict[str, Any]) -> RunConfig:
    policy = PolicyConfig.model_validate(settings)
    small = PolicyConfig(
        name=policy.name, reads=policy.reads, options={**policy.options, "hidden": 5}
    )
    return config.model_copy(update={"policy": small})


def changed(config: RunConfig, section: str, **settings: Any) -> RunConfig:
    new = getattr(config, section).model_copy(update=settings)
    return config.model_copy(update={section: new})


@pytest.mark.parametrize("settings", POLICIES.values(), ids=POLICIES)
def test_a_run_learns_a_policy_and_opens_again(
    tiny_config: RunConfig, tiny: Prepared, tmp_path: Path, settings: dict[str, Any]
) -> None:
    config = with_policy(tiny_config, settings)
    config = changed(config, "model", encoder=EncoderChoice(name="biblosan"))
    config = changed(config, "evaluation", all_tokens=False)
    list(train(config, tmp_path / "run"))
    _, models, _ = open_models(tmp_path / "run", "latest")
    fresh = build_prepared_models(config, tiny)
    for now, before in (
        (models.policy, fresh.policy),
        (models.classifier.encoder, fresh.classifier.encoder),
    ):
        for (name, learnt), start in zip(now.named_parameters(), before.parameters(), strict=True):
            if not name.endswith("pool.score.bias"):  # a softmax does not see it
                assert not torch.equal(learnt, start), name


CORRECTED = [*((settings, "ppo-clip") for settings in POLICIES.values()), ({}, "reinforce")]


@pytest.mark.parametrize(("settings", "update"), CORRECTED, ids=[*POLICIES, "reinforce"])
def test_stale_rollouts_are_corrected(
    tiny_config: RunConfig,
    tiny: Prepared,
    tmp_path: Path,
    settings: dict[str, Any],
    update: str,
) -> None:
    config = with_policy(tiny_config, settings)
    faster = tiny_config.learner.policy.model_copy(update={"learning_rate": 0.01})
    config = changed(
        config, "learner", policy_update=PolicyUpdateConfig(name=update), policy=faster
    )
    config = changed(config, "sampler", max_policy_lag=2)
    config = config.model_copy(update={"phases": tiny_config.phases[1:]})
    trainer = trainer_of(config, tiny, backend=lambda: FirstSnapshot(config, tiny))
    reports = [trainer.update().scalars for _ in range(3)]
    assert [report["policy/lag"] for report in reports] == [0, 1, 2]
    assert [RATIOS & report.keys() for report in reports] == [set(), RATIOS, RATIOS]
    for report in reports[1:]:
        # Were the learner's log-probs not those of the sampler's bits, ratios were far from 1.
        assert 0.7 < report["policy/ratio_mean"] < 1.4
        assert report["policy/ratio_max"] > 1
        assert 0 < report["policy/effective_sample_share"] < 1
