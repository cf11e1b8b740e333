"""A run that begins with the policy of another."""

from __future__ import annotations

import shutil
from copy import copy
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rss_rl.config import RunConfig, parse_config
from rss_rl.data.store import Prepared
from rss_rl.errors import ConfigError
from rss_rl.models.inputs import tensor_batch
from rss_rl.reading.trained_runs import open_models
from rss_rl.runs.checkpoint import checkpoint_steps, load_checkpoint
from rss_rl.training.initial_policy import read_initial_policy
from rss_rl.training.run import train
from rss_rl.training.trainer import Evaluated

_WORDS = "classifier/embedding.trainable"


@pytest.fixture(scope="module")
def source(tiny_config: RunConfig, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("source") / "run"
    config = tiny_config.model_copy(
        update={"evaluation": tiny_config.evaluation.model_copy(update={"all_tokens": False})}
    )
    list(train(config, path))
    return path


def begun(base: RunConfig, source: Path, **changed: Any) -> RunConfig:
    """Another classifier for the policy of `source`, which stays as it is."""
    tree = base.model_dump(mode="json")
    tree["seed"] = base.seed + 1
    tree["policy"] |= {"from_run": str(source)} | changed.pop("policy", {})
    tree["model"] |= {"hidden": base.model.hidden + 1} | changed.pop("model", {})
    tree["evaluation"] |= {"all_tokens": False, "every": 2}
    tree["checkpoint"] = {"every": 1, "keep_last": 9, "keep": "all"}
    tree["reward"] |= {"target_share": None}
    tree["learner"]["supervised"] |= {"embedding_rate": 0.0}
    tree["learner"] |= changed.pop("learner", {})
    tree["phases"] = [{"name": "fit", "supervised": True, "selection": "sampled", "steps": 4}]
    return parse_config(tree | changed, where="test")


def test_another_classifier_reads_what_the_policy_of_a_run_selects(
    tiny_config: RunConfig, tiny: Prepared, source: Path, tmp_path: Path
) -> None:
    events = list(train(begun(tiny_config, source), tmp_path / "run"))
    _, theirs, _ = open_models(source)
    _, mine, _ = open_models(tmp_path / "run")
    for key, value in theirs.policy.state_dict().items():
        assert torch.equal(value, mine.policy.state_dict()[key]), key
    batch = tiny.split("dev").batch(np.arange(8))
    tensors = tensor_batch(batch, torch.device("cpu"))
    with torch.no_grad():
        selections = [[found.mode for found in m.distributions(tensors)] for m in (theirs, mine)]
    for one, other in zip(*selections, strict=True):
        assert torch.equal(one, other)
    kept = [e.metrics["thresholded"]["kept"] for e in events if isinstance(e, Evaluated)]
    assert len(set(kept)) == 1
    first, last = (load_checkpoint(tmp_path / "run", step).tensors for step in (2, 4))
    assert any(
        not np.array_equal(first[name], last[name])
        for name in first
        if name.startswith("classifier/")
    )


@pytest.mark.parametrize("average", [{}, {"weight_average": 0.9}])
def test_it_begins_with_the_policy_and_its_word_vectors(
    tiny_config: RunConfig, source: Path, tmp_path: Path, average: dict[str, Any]
) -> None:
    """However the learner holds them: those that learn, too, where it publishes averages."""
    learner = {
        **average,
        "supervised": {"name": "adam", "learning_rate": 1e-3},
    }
    list(train(begun(tiny_config, source, learner=learner), tmp_path / "run"))
    theirs = load_checkpoint(source, "best").tensors
    first, last = (load_checkpoint(tmp_path / "run", step).tensors for step in (0, 4))
    held = [n for n in first if n.endswith("embedding.trainable") or n.endswith("/written")]
    assert len(held) == 1 + bool(average) * 2
    for name in held:
        np.testing.assert_array_equal(first[name], theirs[_WORDS], err_msg=name)
        assert not np.array_equal(first[name], last[name])


def test_a_resumed_run_no_longer_needs_the_other(
    tiny_config: RunConfig, source: Path, tmp_path: Path
) -> None:
    straight = begun(tiny_config, source)
    list(train(straight, tmp_path / "straight"))
    moving = Path(shutil.copytree(source, tmp_path / "moving"))
    config, path, asked = begun(tiny_config, moving), tmp_path / "run", count(1)
    list(train(config, path, stop=lambda: next(asked) == 3))
    assert max(checkpoint_steps(path)) == 3
    shutil.rmtree(moving)
    list(train(config, path, resume=True))
    one, other = (load_checkpoint(p).tensors for p in (tmp_path / "straight", path))
    assert all(np.array_equal(one[name], other[name]) for name in one | other)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"policy": {"from_run": "nowhere"}}, "has no trained policy: missing"),
        ({"policy": {"options": {"hidden": 7}}}, r"other settings: policy\.options\.hidden=[0-9]+"),
        ({"model": {"activation": "relu"}}, r"other settings: model\.activation=elu"),
    ],
)
@pytest.mark.parametrize("resume", [False, True])
def test_another_policy_is_refused_before_anything_is_written(
    tiny_config: RunConfig,
    source: Path,
    tmp_path: Path,
    changed: dict[str, Any],
    message: str,
    resume: bool,
) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        list(train(begun(tiny_config, source, **changed), tmp_path / "run", resume=resume))
    assert str(caught.value.where).startswith("policy.from_run=")
    assert not (tmp_path / "run").exists()


def test_other_data_are_refused(tiny_config: RunConfig, tiny: Prepared, source: Path) -> None:
    config = begun(tiny_config, source)
    stranger = copy(tiny)
    stranger.manifest = tiny.manifest.model_copy(update={"seed": tiny.manifest.seed + 1})
    with pytest.raises(ConfigError, match="was trained on other data"):
        read_initial_policy(config, stranger)
    encoded = copy(tiny)
    encoded.states_digest = lambda: "another"  # type: ignore[method-assign]
    with pytest.raises(ConfigError, match="read other states of tokens"):
        read_initial_policy(config, encoded)
