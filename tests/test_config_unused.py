"""Settings that the estimator of the policy's gradient does not use are named, once."""

from __future__ import annotations

from pathlib import Path

import pytest

from rss_rl.config import load_config


@pytest.mark.parametrize("estimator", ["arm", "disarm", "flip", "pathwise", "reinforce"])
def test_settings_that_the_estimator_does_not_use_are_named(
    tmp_path: Path, estimator: str, caplog: pytest.LogCaptureFixture
) -> None:
    minimal = tmp_path / "minimal.yaml"
    minimal.write_text("data: some")
    learns = "phases=[{name: a, policy: true, steps: 3}]"
    idle = "phases=[{name: a, supervised: true, steps: 3}]"
    given = [f"learner.estimator={estimator}", "learner.baseline=none", "learner.ratio_max=1.5"]
    load_config(minimal, [learns, f"learner.estimator={estimator}"])
    load_config(minimal, [idle, *given])  # nobody learns by it
    assert not caplog.records
    for _ in range(2):  # said once
        load_config(minimal, [learns, *given])
    if estimator == "reinforce":
        assert not caplog.records
        return
    (record,) = caplog.records
    message = record.getMessage()
    assert message.endswith("rewards: learner.baseline, learner.ratio_max")
    assert f"estimator {estimator}" in message
