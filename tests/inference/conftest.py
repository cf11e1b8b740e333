"""A run of a few updates, which all tests of exports read."""

from __future__ import annotations

from pathlib import Path

import pytest
from tiny_runs import tiny_source, tiny_tree

from rss_rl.config import RunConfig
from rss_rl.data.prepare import prepare
from rss_rl.training.run import train


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a finished run without the comparison."""
    root = tmp_path_factory.mktemp("exported")
    prepare(tiny_source(), root / "data", dim=6, label_weights=True)
    tree = tiny_tree(root / "data")
    tree["phases"] = [
        {"name": "warm-up", "supervised": True, "selection": "all", "steps": 4},
        {"name": "both", "supervised": True, "policy": True, "steps": 4},
    ]
    tree["evaluation"]["all_tokens"] = False
    list(train(RunConfig.model_validate(tree), root / "run"))
    return root / "run"
