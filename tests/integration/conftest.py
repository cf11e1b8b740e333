"""The tiny dataset, its configuration, and the run that others are compared with."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tiny_runs import Outcome, tiny_source, tiny_tree

from rss_rl.components import EVERYTHING
from rss_rl.config import RunConfig, parse_config
from rss_rl.data.prepare import prepare
from rss_rl.training.run import train


@pytest.fixture(scope="session")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiny") / "prepared"
    prepare(tiny_source(), folder, dim=6)
    return folder


@pytest.fixture(scope="session")
def tiny(prepared: Path) -> Callable[..., RunConfig]:
    """Makes the configuration; arguments replace keys of sections: `sampler={"actors": 2}`."""

    def make(**changes: Any) -> RunConfig:
        tree = tiny_tree(prepared)
        for key, value in changes.items():
            tree[key] = {**tree.get(key, {}), **value} if isinstance(value, dict) else value
        return parse_config(tree, where="test", trust=EVERYTHING)

    return make


@pytest.fixture(scope="session")
def reference_run(tiny: Callable[..., RunConfig], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny run, in one process and never stopped."""
    path = tmp_path_factory.mktemp("reference") / "run"
    list(train(tiny(), path))
    return path


@pytest.fixture(scope="session")
def reference(reference_run: Path) -> Outcome:
    """Of the tiny run."""
    return Outcome.read(reference_run)


@pytest.fixture
def shared_ray() -> None:
    """One Ray for all tests of a worker that ask for it: starting it takes longer than most."""
    from ray_nodes import start_ray  # some tests here run without Ray

    start_ray(4, num_gpus=0)


@pytest.fixture
def processes() -> Iterator[list[subprocess.Popen[str]]]:
    """Those that a test starts; none is left behind."""
    started: list[subprocess.Popen[str]] = []
    yield started
    for process in started:
        process.kill()
        process.communicate()
