"""Sizes that no machine has room for are refused before anything is made; shortage is told."""

from __future__ import annotations

import socket
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import rss_rl.training.memory_needs as memory_needs
from rss_rl.config import RunConfig, parse_config
from rss_rl.data.store import Prepared
from rss_rl.errors import ConfigError, ResourceError
from rss_rl.inference.model import Model, load_model
from rss_rl.rollouts.snapshot import build_prepared_models
from rss_rl.training.learner import LocalLearner
from rss_rl.training.memory_needs import available_bytes, check_room, memory_errors, run_needs
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
        ("evaluation__selections", 10**10, "evaluation.selections"),
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


def test_a_large_batch_is_counted_as_it_is_asked_for(
    tiny_config: RunConfig, tiny: Prepared
) -> None:
    train = tiny.manifest.splits["train"]
    config = with_values(tiny_config, batch_size=10**6, model__hidden=300)
    needs = {need.settings: need.bytes for need in run_needs(config, tiny)}
    cells = 10**6 * sum(train.tokens) / train.rows
    assert needs["batch_size, model.hidden"] > cells * 4 * 4 * 300
    halves = with_values(config, learner__actors=2, sampler__backend="ray")
    shared = {need.settings: need.bytes for need in run_needs(halves, tiny)}
    assert shared["batch_size, model.hidden"] == needs["batch_size, model.hidden"] / 2
    bounded = with_values(config, batch_tokens=10_000)
    needs = {need.settings: need.bytes for need in run_needs(bounded, tiny)}
    assert needs["batch_size, model.hidden"] < 100e6


def test_a_batch_that_has_no_room_is_refused_with_the_rows_there_are(
    tiny_config: RunConfig, tmp_path: Path
) -> None:
    config = with_values(tiny_config, batch_size=10**9, model__hidden=300)
    with pytest.raises(ConfigError, match=r"at least [\d,.]+ GB of memory") as output:
        next(train(config, tmp_path / "run"))
    assert "batch_size" in output.value.where
    assert "train has 48 rows" in output.value.remedy


def test_of_a_batch_larger_than_the_data_is_reported(
    tiny_config: RunConfig, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = with_values(tiny_config, batch_size=10**5)
    next(train(config, tmp_path / "run"))
    assert "batch_size is 100,000, and train has 48 rows: every update reads" in caplog.text


def test_learners_are_asked_about_the_machine_they_share(
    tiny_config: RunConfig, tiny: Prepared, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {"actors": 2, "threads": 1}
    config = with_values(tiny_config, sampler__backend="ray", model__hidden=3000)
    tree = config.model_dump(mode="json")
    tree["learner"] |= settings
    config = parse_config(tree, where="test")
    needs = run_needs(config, tiny)
    one = needs[0].bytes + max(need.bytes for need in needs[1:])
    assert one > 2**28
    monkeypatch.setattr(memory_needs, "available_bytes", lambda: 1.5 * one)
    check_room(config, tiny, sharing=1)
    with pytest.raises(ConfigError, match="the 2 learners on a machine take at least") as output:
        check_room(config, tiny, sharing=2)
    assert socket.gethostname() in output.value.what


def test_a_learner_on_a_gpu_is_asked_about_its_memory(
    tiny_config: RunConfig, tiny: Prepared, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = with_values(tiny_config, learner__device="cuda:1", model__hidden=3000)
    needs = run_needs(config, tiny)
    wanted = needs[0].bytes + max(need.bytes for need in needs[1:])
    asked, free = [], [wanted - 1]

    def mem_get_info(device: torch.device) -> tuple[int, int]:
        asked.append(device)
        return int(free[0]), 10**12

    monkeypatch.setattr(torch.cuda, "mem_get_info", mem_get_info)
    monkeypatch.setattr(memory_needs, "available_bytes", lambda: 1.0)
    with pytest.raises(ConfigError, match="are available on cuda:1"):
        check_room(config, tiny)
    free[0] = wanted + 1
    check_room(config, tiny, sharing=8)
    assert asked == [torch.device("cuda:1")] * 2


def test_weights_are_counted_as_they_are_made(tiny_config: RunConfig, tiny: Prepared) -> None:
    config = with_values(tiny_config, learner__weight_average=0.9)
    models = build_prepared_models(config, tiny)
    counts = [sum(p.numel() for p in module.parameters()) for module in models.modules.values()]
    before = torch.random.get_rng_state()
    assert run_needs(config, tiny)[0].bytes == 4 * (6 * counts[0] + 5 * counts[1])
    assert torch.equal(torch.random.get_rng_state(), before)


@pytest.mark.parametrize(
    "limits",
    [{"_container": 5.0}, {"_own_limit": 5.0}, {"_meminfo": 5.0}],
)
def test_what_is_available_is_the_least_of_what_is_known(
    limits: dict[str, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert 1e6 < available_bytes() < 1e15
    for name, value in limits.items():
        monkeypatch.setattr(memory_needs, name, lambda value=value: value)
    assert available_bytes() == 5.0


@pytest.mark.parametrize("key", ["learner__threads", "sampler__threads"])
def test_more_threads_than_can_be_started_are_refused(key: str, tiny_config: RunConfig) -> None:
    with pytest.raises(ConfigError, match="1024"):
        with_values(tiny_config, **{key: 10_000})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("reward__sparsity_cost", 1e308),
        ("reward__coherence_cost", 1e30),
        ("learner__supervised__learning_rate", 1e200),
        ("learner__entropy_cost", 1e16),
        ("sampler__timeout_s", 1e300),
    ],
)
def test_numbers_that_float32_has_no_room_for_are_refused(
    key: str, value: float, tiny_config: RunConfig
) -> None:
    with pytest.raises(ConfigError, match=r"beyond the largest number allowed, 1e\+15"):
        with_values(tiny_config, **{key: value})


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
        patch.setattr(LocalLearner, "_learn", fails)
        with pytest.raises(ResourceError, match=r"memory to train .*Lower batch_size or batch_tok"):
            list(train(tiny_config, path))
    list(train(tiny_config, path, resume=True, stop=lambda: True))
    with monkeypatch.context() as patch:
        patch.setattr("rss_rl.training.trained_models.build_prepared_models", fails)
        with pytest.raises(ResourceError, match=r"memory for the model"):
            load_model(path, "latest")
    model = load_model(path, "latest")
    with monkeypatch.context() as patch:
        patch.setattr(Model, "choose", fails)
        with pytest.raises(ResourceError, match=r"memory to read a text .*Cut it into parts"):
            model.predict([("a yes", "b no")])


def test_other_errors_stay_what_they_are() -> None:
    with pytest.raises(RuntimeError, match="shapes"), memory_errors("to test", ""):
        raise RuntimeError("shapes do not fit")
