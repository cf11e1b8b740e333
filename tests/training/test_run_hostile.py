"""A hostile run directory: states and tensors that were made for another program."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rss_rl.config import RunConfig
from rss_rl.errors import CheckpointError
from rss_rl.reading.trained_runs import open_models
from rss_rl.runs.checkpoint import load_checkpoint, save_checkpoint
from rss_rl.training.run import train

pytestmark = pytest.mark.timeout(60)


@pytest.fixture(scope="module")
def stopped(tiny_config: RunConfig, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was stopped after its ninth update, as a template."""
    path = tmp_path_factory.mktemp("stopped") / "run"
    asked = iter([False] * 8 + [True])
    list(train(tiny_config, path, stop=lambda: next(asked)))
    return path


def forge(
    run: Path, change: Callable[[dict[str, Any], dict[str, np.ndarray[Any, Any]]], object]
) -> None:
    """Rewrite the newest checkpoint with right checksums."""
    found = load_checkpoint(run)
    change(found.state, found.tensors)
    shutil.rmtree(found.path)
    save_checkpoint(run, found.step, found.tensors, found.state, keep_last=9)


def resumed(config: RunConfig, template: Path, place: Path, change: Callable[..., object]) -> Path:
    shutil.copytree(template, place)
    forge(place, change)
    list(train(config, place, resume=True))
    return place


STATES: dict[str, Callable[[dict[str, Any]], object]] = {
    "nothing": lambda s: s.clear(),
    "no schedule": lambda s: s.pop("schedule"),
    "a schedule of another kind": lambda s: s.update(schedule=[1]),
}


def first(tensors: dict[str, np.ndarray[Any, Any]], prefix: str) -> str:
    return min(name for name in tensors if name.startswith(prefix) and tensors[name].ndim == 2)


TENSORS: dict[str, Callable[[dict[str, np.ndarray[Any, Any]]], object]] = {
    "none": lambda t: t.clear(),
    "one is missing": lambda t: t.pop(first(t, "classifier/")),
    "one too many": lambda t: t.update({"policy/../../x": np.zeros(1)}),
    "another shape": lambda t: t.update({first(t, "policy/"): np.zeros((1, 1), np.float32)}),
    "another dtype": lambda t: t.update({(n := first(t, "policy/")): t[n].astype(np.float64)}),
    "bits for numbers": lambda t: t.update({(n := first(t, "classifier/")): t[n] > 0}),
    "an optimizer's shape": lambda t: t.update({first(t, "learning/optimizer/"): np.zeros((1, 1))}),
    "an optimizer's parameter": lambda t: t.update(
        {"policy_update/optimizer/99999/exp_avg": np.ones(1)}
    ),
    "an optimizer's quantity": lambda t: t.pop(
        min(n for n in t if n.startswith("learning/optimizer/") and n.endswith("exp_avg"))
    ),
}


@pytest.mark.parametrize("name", [*STATES, *TENSORS])
def test_what_does_not_fit(
    name: str, tiny_config: RunConfig, stopped: Path, tmp_path: Path
) -> None:
    def change(state: dict[str, Any], tensors: dict[str, np.ndarray[Any, Any]]) -> object:
        return STATES[name](state) if name in STATES else TENSORS[name](tensors)

    with pytest.raises(CheckpointError) as caught:
        resumed(tiny_config, stopped, tmp_path / "run", change)
    assert caught.value.remedy
    if name in TENSORS and not name.startswith("an optimizer"):
        with pytest.raises(CheckpointError):
            open_models(tmp_path / "run", "latest")
