"""A run with a pretrained transformer: resumed, on both backends, exported, in use."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_transformers
from safetensors.numpy import load_file
from tiny_runs import Outcome, stop_and_resume

import rss_rl
from rss_rl.cluster.roles import RayRoles
from rss_rl.config import RunConfig
from rss_rl.data.store import open_prepared
from rss_rl.errors import CheckpointError
from rss_rl.inference.artifact import export_run, pack_model
from rss_rl.reading.models import build_prepared_models
from rss_rl.rollouts.snapshot import Publisher
from rss_rl.training.run import train


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_transformers.save(tmp_path_factory.mktemp("tiny") / "bert")


@pytest.fixture(scope="session")
def configured(tiny: Callable[..., RunConfig], folder: Path) -> Callable[..., RunConfig]:
    def make(learns: str = "lora", **changes: Any) -> RunConfig:
        options = {"pretrained": str(folder), "learns": learns, "rank": 2}
        model = {"encoder": {"name": "transformer", "options": options}}
        return tiny(model=model, evaluation={"all_tokens": False}, **changes)

    return make


@pytest.fixture(scope="session")
def run(configured: Callable[..., RunConfig], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("transformer") / "run"
    list(train(configured(), path))
    return path


def test_stopped_and_resumed(
    configured: Callable[..., RunConfig], run: Path, tmp_path: Path
) -> None:
    stop_and_resume(configured(), tmp_path / "run", 17)
    Outcome.read(tmp_path / "run").assert_equals(Outcome.read(run))


def test_a_snapshot_holds_what_learns(configured: Callable[..., RunConfig]) -> None:
    """Adapters and head: neither the transformer, nor word vectors after the first time."""
    config = configured()
    models = build_prepared_models(config, open_prepared(config.data))
    classifier = Publisher(models).publish(0).deltas[0]
    learning = [p for p in models.classifier.parameters() if p.requires_grad]
    assert 0 <= len(classifier.weights) - sum(p.numel() for p in learning) < 16 * len(learning)
    assert len(classifier.weights) < sum(p.numel() for p in models.classifier.parameters()) / 2


def test_an_export_stands_alone(run: Path, folder: Path, tmp_path: Path) -> None:
    texts = ["w1 w2 w3", "unheard of w1", "words that nobody has seen"]
    before = rss_rl.load(run).predict(texts)
    export = export_run(run, tmp_path / "export")
    moved = shutil.move(export, tmp_path / "moved")
    record = json.loads((moved / "export.json").read_text())
    assert str(folder) not in json.dumps(record)
    after = rss_rl.load(moved).predict(texts)
    assert [e.class_probabilities for e in after] == [e.class_probabilities for e in before]
    saved = load_file(moved / "weights.safetensors")
    assert any("lora_" in name for name in saved)
    assert not any("base_layer" in name for name in saved)
    weights = moved / "pretrained-0" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-4] + b"\0\0\0\1")
    with pytest.raises(CheckpointError, match="not the file that was exported"):
        rss_rl.load(moved)


def test_an_export_may_hold_the_trained_transformer(
    configured: Callable[..., RunConfig], folder: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    list(train(configured("all"), run))
    export = export_run(run, tmp_path / "export", which="latest", encoder=True)
    written = load_file(export / "encoder" / "model.safetensors")
    reader = rss_rl.load(run, "latest").models.classifier.encoder.reader.model
    assert written.keys() == reader.state_dict().keys()
    for name, weight in reader.state_dict().items():
        assert np.array_equal(written[name], weight.numpy()), name
    before = load_file(folder / "model.safetensors")
    assert any(not np.array_equal(weight, before[name]) for name, weight in written.items())
    assert not any("encoder/" in name for name in pack_model(export).files)
    assert not (export_run(run, tmp_path / "without") / "encoder").exists()
    shutil.rmtree(export / "encoder")  # nothing here reads it
    assert rss_rl.load(export).predict(["w1 w2"])


def explaining(tiny: Callable[..., RunConfig], model: dict[str, Any], **changes: Any) -> RunConfig:
    """A run in which the policy alone learns, from this reward model."""
    return tiny(
        reward={"model": model},
        phases=[{"name": "explain", "policy": True, "steps": 4}],
        evaluation={"best_metric": "reward", "all_tokens": False},
        **changes,
    )


def blackbox(pretrained: Path) -> dict[str, Any]:
    return {"name": "blackbox", "options": {"pretrained": str(pretrained)}}


@pytest.mark.usefixtures("shared_ray")
def test_a_black_box_resumed_and_on_ray(
    tiny: Callable[..., RunConfig], prepared: Path, tmp_path: Path
) -> None:
    names = open_prepared(prepared).labels.names
    place = tmp_path / "classifier"
    tiny_transformers.save(place, classes=len(names), id2label=dict(enumerate(names)))
    config = explaining(tiny, blackbox(place))
    list(train(config, tmp_path / "run"))
    assert rss_rl.load(tmp_path / "run").select(["w1 w2 w3"])[0][0].words
    once = Outcome.read(tmp_path / "run")
    stop_and_resume(config, tmp_path / "resumed", 2)
    Outcome.read(tmp_path / "resumed").assert_equals(once)
    spread = explaining(tiny, blackbox(place), sampler={"backend": "ray", "actors": 2})
    list(train(spread, tmp_path / "on-ray", roles=RayRoles()))
    Outcome.read(tmp_path / "on-ray").assert_equals(once)
