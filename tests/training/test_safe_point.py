"""A run that is left in the midst of an update resumes from the update before, to the bit."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rss_rl.config import RunConfig
from rss_rl.runs.checkpoint import load_checkpoint
from rss_rl.training.run import train
from rss_rl.training.stopping import SafePoint


class Left(Exception):
    """In place of the end of the process."""


class LeftAt(SafePoint):
    """Left when it is closed for the n-th time: before a step, or when dev was scored."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self._left = number

    def close(self) -> None:
        if self._leave is not None:
            self._left -= 1
            if not self._left:
                self._leave()
                raise Left
        super().close()


def tensors_of(path: Path) -> dict[str, Any]:
    return dict(load_checkpoint(path, "latest").tensors)


@pytest.fixture(scope="module")
def averaged(tiny_config: RunConfig) -> RunConfig:
    """Whose learners have more state than weights."""
    estimator = {"name": "reinforce", "options": {"baseline": "moving-average"}}
    learner = tiny_config.learner.model_dump() | {"weight_average": 0.9, "estimator": estimator}
    return RunConfig.model_validate(tiny_config.model_dump() | {"learner": learner})


@pytest.fixture(scope="module")
def straight(averaged: RunConfig, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    path = tmp_path_factory.mktemp("straight") / "run"
    list(train(averaged, path))
    return tensors_of(path)


@pytest.mark.parametrize("number", [2, 7, 10, 13])
def test_it_is_gone_on_with_as_if_it_had_never_been_left(
    number: int, averaged: RunConfig, straight: dict[str, Any], tmp_path: Path
) -> None:
    """Of the warm-up, frozen and co-train phases, and of evaluations within them."""
    path = tmp_path / "run"
    with pytest.raises(Left):
        list(train(averaged, path, point=LeftAt(number)))
    list(train(averaged, path, resume=True))
    found = tensors_of(path)
    assert found.keys() == straight.keys()
    for name, value in straight.items():
        np.testing.assert_array_equal(found[name], value, err_msg=name)


def test_whoever_trains_stands_still_once_it_is_left() -> None:
    point, output = SafePoint(), list[str]()
    assert not point.leave()

    def work() -> None:
        with point.open(lambda: output.append("left")):
            opened.set()
            go_on.wait(10)
            point.close()
            output.append("went on")

    opened, go_on = threading.Event(), threading.Event()
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    assert opened.wait(10)
    assert point.leave()
    go_on.set()
    thread.join(0.3)
    assert thread.is_alive()
    assert output == ["left"]


def test_a_closed_point_cannot_be_left() -> None:
    point = SafePoint()
    with point.open(lambda: pytest.fail("it was closed")):
        point.close()
        assert not point.leave()
    assert not point.leave()
