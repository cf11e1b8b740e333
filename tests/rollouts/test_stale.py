"""A run that gets rollouts of an older policy corrects for it, and says by how much."""

from __future__ import annotations

from pathlib import Path

import pytest
from first_snapshot import FirstSnapshot
from trainers import trainer_of

from rss_rl.config import EstimatorConfig, RunConfig
from rss_rl.data.store import Prepared

RATIOS = {
    "policy/ratio_mean",
    "policy/ratio_max",
    "policy/ratio_clipped",
    "policy/effective_sample_share",
}


@pytest.mark.parametrize("correction", ["none", "truncated-sum"])
def test_stale_rollouts_are_corrected(
    tiny_config: RunConfig, tiny: Prepared, tmp_path: Path, correction: str
) -> None:
    policy = tiny_config.learner.policy.model_copy(update={"learning_rate": 0.05})
    learning = tiny_config.learner.model_copy(
        update={
            "estimator": EstimatorConfig(name="reinforce", options={"correction": correction}),
            "policy": policy,
        }
    )
    sampling = tiny_config.sampler.model_copy(update={"max_policy_lag": 2})
    changes = {"learner": learning, "sampler": sampling, "phases": tiny_config.phases[1:]}
    config = tiny_config.model_copy(update=changes)
    trainer = trainer_of(config, tiny, tmp_path, backend=lambda: FirstSnapshot(config, tiny))
    reports = [trainer.update().scalars for _ in range(3)]
    assert [report["policy/lag"] for report in reports] == [0, 1, 2]
    assert not RATIOS & reports[0].keys()
    for report in reports[1:]:
        assert report.keys() >= RATIOS if correction != "none" else not RATIOS & report.keys()
    if correction != "none":
        assert reports[2]["policy/ratio_max"] > reports[1]["policy/ratio_max"] > 1
        assert 0 < reports[2]["policy/effective_sample_share"] < 1
