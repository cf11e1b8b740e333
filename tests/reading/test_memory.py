"""Sizes that no machine has room for are refused before anything is made; shortage is told."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import rss_rl.reading.memory as memory
from rss_rl.config import RunConfig, parse_config
from rss_rl.errors import ConfigError, ResourceError
from rss_rl.inference.model import Model, load_model
from rss_rl.reading.memory import available_bytes, memory_errors
from rss_rl.training.learner import LocalLearner
from rss_rl.training.run import train


def with_values(config: RunConfig, **values: Any) -> RunConfig:
    tree = config.model_dump(mode="json")
    for key, value in values.items():
        node, parts = tree, key.split("__")
        for part in parts[:-1]:
            node = node[part]
        node[parts[-1]] = value
    return parse_config(tree, where="test")


@pytest.mark.parametrize(
    ("key", "value", "named"),
    [
        ("model__hidden", 10**9, "model.hidden"),
        ("model__hidden", 10**6, "model.hidden"),
        ("policy__options__hidden", 10**9, "policy.options"),
        ("sampler__selections", 10**10, "sampler.selections"),
    ],
)
def test_what_has_no_room_is_refused_before_it_is_made(
    key: str, value: int, named: str, tiny_config: RunConfig, tmp_path: Path
) -> None:
    config = with_values(tiny_config, **{key: value})
    tracemalloc.start()
    try:
        with pytest.raises(
            ConfigError, match=r"at least .* GB .*, and [\d,.]+ GB are av"
        ) as output:
            next(train(config, tmp_path / "run"))
        assert tracemalloc.get_traced_memory()[1] < 50e6
    finally:
        tracemalloc.stop()
    assert named in output.value.where
    assert not (tmp_path / "run").exists()


def test_a_batch_that_has_no_room_is_refused_with_the_rows_there_are(
    tiny_config: RunConfig, tmp_path: Path
) -> None:
    config = with_values(tiny_config, batch_size=10**9, model__hidden=300)
    with pytest.raises(ConfigError, match=r"at least [\d,.]+ GB of memory") as output:
        next(train(config, tmp_path / "run"))
    assert "batch_size" in output.value.where
    assert "train has 48 rows" in output.value.remedy


@pytest.mark.parametrize("limit", ["_container", "_meminfo"])
def test_what_is_available_is_the_least_of_what_is_known(
    limit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert 1e6 < available_bytes() < 1e15
    monkeypatch.setattr(memory, limit, lambda: 5.0)
    assert available_bytes() == 5.0


def torch_runs_out(*_: Any, **__: Any) -> Any:
    return torch.empty(10**15)


def numpy_runs_out(*_: Any, **__: Any) -> Any:
    return np.empty(10**16)


def device_runs_out(*_: Any, **__: Any) -> Any:
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB")


@pytest.mark.parametrize("fails", [torch_runs_out, numpy_runs_out, device_runs_out])
def test_shortage_is_an_error_with_a_remedy(
    fails: Any, tiny_config: RunConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr(LocalLearner, "update", fails)
        with pytest.raises(ResourceError, match=r"memory to train .*Lower batch_size or batch_tok"):
            list(train(tiny_config, path))
    list(train(tiny_config, path, resume=True, stop=lambda: True))
    with monkeypatch.context() as patch:
        patch.setattr("rss_rl.reading.models.build_prepared_models", fails)
        with pytest.raises(ResourceError, match=r"memory for the model"):
            load_model(path, "latest")
    model = load_model(path, "latest")
    with monkeypatch.context() as patch:
        patch.setattr(Model, "choose", fails)
        with pytest.raises(ResourceError, match=r"memory to read a text .*Cut it"):
            model.predict([("a yes", "b no")])


def test_other_errors_stay_what_they_are() -> None:
    with pytest.raises(RuntimeError, match="shapes"), memory_errors("to test", ""):
        raise RuntimeError("shapes do not fit")
