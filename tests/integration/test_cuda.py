"""Runs on a GPU: as on the CPU but for rounding, and among themselves to the bit."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_transformers
import torch
from tiny_runs import Outcome, reports_of, stop_and_resume

import rss_rl
from rss_rl.api.encode import encode
from rss_rl.config import RunConfig
from rss_rl.data.store import open_prepared
from rss_rl.inference.facts import gather_facts
from rss_rl.inference.model import Model
from rss_rl.training.run import train

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]
ON_GPU = {"device": "cuda"}
SAMPLERS = {"backend": "ray", "actors": 2, "gpus": 0.2}


@pytest.fixture(scope="session")
def encoders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    folder = tiny_transformers.save(tmp_path_factory.mktemp("tiny") / "bert")
    options = {"pretrained": str(folder), "learns": "lora", "rank": 2}
    return {"resan": {}, "transformer": {"encoder": {"name": "transformer", "options": options}}}


@pytest.fixture(params=["resan", "transformer"])
def configured(
    request: pytest.FixtureRequest,
    tiny: Callable[..., RunConfig],
    encoders: dict[str, dict[str, Any]],
) -> Callable[..., RunConfig]:
    def make(**changes: Any) -> RunConfig:
        changes["learner"] = ON_GPU | changes.get("learner", {})
        model = encoders[request.param] | {"dropout": 0.2}
        return tiny(model=model, evaluation={"all_tokens": False}, **changes)

    return make


def test_the_first_updates_are_those_of_the_cpu(
    tiny: Callable[..., RunConfig], tmp_path: Path
) -> None:
    """Later ones part: a bit whose probability is near its uniform number falls otherwise.

    With the dropout that is ours. Transformers draw theirs from the device's own generator.
    """
    found = []
    for device in ("cuda", "cpu"):
        whole = {"learner": {"device": device}, "evaluation": {"all_tokens": False}}
        config = tiny(model={"dropout": 0.2}, **whole)
        events = list(train(config, tmp_path / device))
        found.append([report.scalars for report in reports_of(events)[:10]])
    for on_gpu, on_cpu in zip(*found, strict=True):
        for tag in ("train/loss", "train/gradient_norm"):
            assert on_gpu[tag] == pytest.approx(on_cpu[tag], rel=1e-3), tag


def test_stopped_and_resumed(configured: Callable[..., RunConfig], tmp_path: Path) -> None:
    list(train(configured(), tmp_path / "whole"))
    stop_and_resume(configured(), tmp_path / "resumed", 17)
    Outcome.read(tmp_path / "resumed").assert_equals(Outcome.read(tmp_path / "whole"))


def test_samplers_share_the_gpu(configured: Callable[..., RunConfig], tmp_path: Path) -> None:
    """One or two, which also shows that a learner in an actor, with NCCL, learns the same."""
    pytest.importorskip("ray", reason="no package 'ray'")
    from ray_nodes import own_ray

    from rss_rl.cluster.roles import RayRoles

    learners = {"actors": 1, "gpus": 0.5}
    with own_ray(4, num_gpus=1):
        for name, changes in {
            "one": {"sampler": SAMPLERS | {"actors": 1}},
            "two": {"sampler": SAMPLERS},
            "learner apart": {"sampler": SAMPLERS, "learner": learners},
        }.items():
            list(train(configured(**changes), tmp_path / name, roles=RayRoles()))
    one = Outcome.read(tmp_path / "one")
    Outcome.read(tmp_path / "two").assert_equals(one)
    apart = Outcome.read(tmp_path / "learner apart")
    for name, value in one.tensors.items():
        np.testing.assert_allclose(apart.tensors[name], value, atol=1e-4, err_msg=name)


def shown(model: Model, text: str) -> list[Any]:
    """What the model says with each word of a text flipped."""
    return list(gather_facts(model, model.encode((text,))).flips)


def test_in_use(configured: Callable[..., RunConfig], tmp_path: Path) -> None:
    """A trained model reads on the GPU what it reads on the CPU."""
    list(train(configured(), tmp_path / "run"))
    texts = ["warm film with the scene", "unheard of", "cold"]
    on_cpu, on_gpu = (rss_rl.load(tmp_path / "run", device=device) for device in ("cpu", "cuda"))
    for one, other in zip(*(m.predict(texts) for m in (on_cpu, on_gpu)), strict=True):
        assert one.class_probabilities == pytest.approx(other.class_probabilities, abs=1e-4)
        selections = ([s.selection.tolist() for s in said.sentences] for said in (one, other))
        assert next(selections) == next(selections)
    for here, there in zip(*(shown(m, texts[0]) for m in (on_cpu, on_gpu)), strict=True):
        np.testing.assert_allclose(here, there, atol=1e-4)


def test_a_contextual_policy(
    tiny: Callable[..., RunConfig],
    encoders: dict[str, dict[str, Any]],
    prepared: Path,
    tmp_path: Path,
) -> None:
    """States written by the GPU are the CPU's, and its policy is in use what it was in training."""
    folder = encoders["transformer"]["encoder"]["options"]["pretrained"]
    found = []
    for device in ("cpu", "cuda"):
        data = shutil.copytree(prepared, tmp_path / device)
        states = encode(data, folder, device=device)
        split = open_prepared(data).with_states(folder, states.encoding.digest).split("train")
        found.append(split.batch(np.arange(len(split))).states)
    assert None not in found
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(one, other, atol=2e-3)
    policy = {"reads": "contextual", "pretrained": folder}
    config = tiny(
        data=str(tmp_path / "cuda"),
        policy=policy,
        learner=ON_GPU,
        evaluation={"all_tokens": False},
    )
    list(train(config, tmp_path / "run"))
    assert rss_rl.load(tmp_path / "run", device="cuda").predict(["warm film", "quite unheard of"])
