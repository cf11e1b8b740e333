"""What samplers ask of Ray, and where they compute."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from rss_rl.cluster import roles, sampler_actor
from rss_rl.config import RunConfig
from rss_rl.errors import ConfigError


@pytest.mark.parametrize("gpus", [0.0, 0.25, 1.0])
def test_a_sampler_takes_its_part_of_a_gpu(
    gpus: float, tiny_config: RunConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: dict[str, Any] = {}
    monkeypatch.setattr(roles.ray, "remote", lambda **options: asked.update(options) or id)
    monkeypatch.setattr(roles, "RayBackend", lambda *_: None)
    roles.ray_samplers(_with_gpus(tiny_config, gpus))
    assert asked["num_gpus"] == gpus
    assert asked["num_cpus"] == tiny_config.sampler.threads


@pytest.mark.parametrize(("gpus", "name"), [(0.0, "cpu"), (0.25, "cuda")])
def test_a_sampler_computes_on_the_gpu_that_it_was_given(
    gpus: float, name: str, tiny_config: RunConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    devices: list[torch.device] = []
    monkeypatch.setattr(sampler_actor, "find_device", lambda name, _: torch.device(name))
    monkeypatch.setattr(sampler_actor, "Sampler", lambda *given: devices.append(given[-1]))
    sampler_actor.SamplerActor(_with_gpus(tiny_config, gpus).model_dump(mode="json"))
    assert devices == [torch.device(name)]


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_a_gpu_that_torch_cannot_use_is_named(tiny_config: RunConfig) -> None:
    with pytest.raises(ConfigError, match=r"^sampler\.gpus: the device 'cuda' cannot be used"):
        sampler_actor.SamplerActor(_with_gpus(tiny_config, 0.25).model_dump(mode="json"))


def _with_gpus(config: RunConfig, gpus: float) -> RunConfig:
    sampler = config.sampler.model_copy(update={"gpus": gpus, "backend": "ray"})
    return config.model_copy(update={"sampler": sampler})
