"""A reward that asks no classifier: none is trained, and nothing is predicted; metrics by name."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console

from rss_rl.cli.show import print_explanation, print_report
from rss_rl.components import EVERYTHING
from rss_rl.config import RunConfig, parse_config
from rss_rl.data.store import Prepared
from rss_rl.errors import ConfigError
from rss_rl.inference.model import Model
from rss_rl.logs.metrics import read_metrics
from rss_rl.reading.models import build_prepared_models
from rss_rl.results.agreement import score_agreement
from rss_rl.runs.checkpoint import load_checkpoint
from rss_rl.training.run import Finished, train
from rss_rl.training.trainer import Evaluated, find_best_metric

RULE = "plugged_rewards:RULE"
ALONE = [{"name": "alone", "policy": True, "steps": 6, "patience": 9}]


def of(tiny_config: RunConfig, **sections: Any) -> RunConfig:
    tree = tiny_config.model_dump(mode="json")
    for name, section in sections.items():
        tree[name] = {**tree[name], **section} if isinstance(section, dict) else section
    return parse_config(tree, where="test", trust=EVERYTHING)


@pytest.fixture(scope="module")
def ruled(
    tiny_config: RunConfig, tmp_path_factory: pytest.TempPathFactory
) -> tuple[RunConfig, Path, list[Any]]:
    path = tmp_path_factory.mktemp("ruled") / "run"
    config = of(
        tiny_config,
        reward={"model": {"name": RULE, "options": {"weight": 2.0}}, "sparsity_cost": 0.1},
        phases=ALONE,
    )
    return config, path, list(train(config, path))


def test_it_trains_the_policy_alone(
    ruled: tuple[RunConfig, Path, list[Any]], tiny: Prepared
) -> None:
    config, path, _ = ruled
    assert not config.predicts
    fresh = build_prepared_models(config, tiny)
    tensors = load_checkpoint(path).tensors
    for name, value in fresh.classifier.state_dict().items():
        assert np.array_equal(tensors[f"classifier/{name}"], value.numpy()), name
    moved = [
        not np.array_equal(tensors[f"policy/{name}"], value.numpy())
        for name, value in fresh.policy.state_dict().items()
    ]
    assert all(moved)
    tags = {row["tag"] for row in read_metrics(path).to_pylist()}
    assert {"reward/good", "reward/kept_words", "reward/sparsity_cost", "reward/total"} <= tags
    assert not any("log_likelihood" in tag or "accuracy" in tag for tag in tags)


def test_reports_leave_out_what_nobody_predicted(
    ruled: tuple[RunConfig, Path, list[Any]],
) -> None:
    _, path, events = ruled
    assert isinstance(events[-1], Finished)
    report = json.loads((path / "report.json").read_text())
    modes = report["splits"]["test"]
    assert set(modes) == {"thresholded", "sampled", "random"}  # no comparison with all tokens
    for scores in modes.values():
        assert not {"loss", "accuracy"} & set(scores)
        assert {"reward", "kept", "rationale_f1"} <= set(scores)
    out = Console(width=200, record=True, file=io.StringIO())
    print_report(out, path, report)
    text = out.export_text()
    assert "reward" in text


def test_the_best_checkpoint_is_that_of_the_best_reward(
    ruled: tuple[RunConfig, Path, list[Any]], tiny: Prepared
) -> None:
    config, path, events = ruled
    found = find_best_metric(config, tiny)
    assert (found.name, found.lower_is_better) == ("reward", False)
    scored = [e for e in events if isinstance(e, Evaluated)]
    best = max(scored, key=lambda e: e.metrics["thresholded"]["reward"])
    assert load_checkpoint(path, "best").step == best.update


def test_it_selects_and_predicts_nothing(
    ruled: tuple[RunConfig, Path, list[Any]], tiny: Prepared
) -> None:
    config = ruled[0]
    model = Model(config, build_prepared_models(config, tiny), tiny)
    texts = (("yes", "w1"), ("no", "w2", "w3"))
    (sentences,) = model.select([texts])
    assert [sentence.words for sentence in sentences] == list(texts)
    (explanation,) = model.predict([texts])
    assert (explanation.prediction, explanation.class_probabilities) == (None, None)
    print_explanation(out := Console(record=True, file=io.StringIO()), explanation)
    assert "trained no classifier" in out.export_text()
    with pytest.raises(ConfigError, match="trained no classifier"):
        score_agreement(model.models, tiny.split("dev"), config, device=torch.device("cpu"))


@pytest.mark.parametrize(
    ("changed", "fragment"),
    [
        ({"evaluation": {"best_metric": "acuracy"}}, "did you mean 'accuracy'"),
        (
            {
                "evaluation": {"best_metric": "loss"},
                "reward": {"model": RULE},
                "phases": ALONE,
            },
            "trains no classifier, so dev has no 'loss'",
        ),
    ],
)
def test_metrics_that_do_not_fit_are_refused(
    tiny_config: RunConfig, tiny: Prepared, changed: dict[str, Any], fragment: str
) -> None:
    with pytest.raises(ConfigError, match=fragment):
        find_best_metric(of(tiny_config, **changed), tiny)


def test_a_supervised_phase_trains_the_classifier_for_prediction(
    tiny_config: RunConfig, tmp_path: Path
) -> None:
    config = of(
        tiny_config,
        reward={"model": RULE},
        evaluation={"all_tokens": False},
        phases=[{"name": "both", "supervised": True, "policy": True, "steps": 2}],
    )
    assert config.predicts
    events = list(train(config, tmp_path / "run"))
    (dev,) = (e.metrics["thresholded"] for e in events if isinstance(e, Evaluated) and e.update)
    assert {"loss", "accuracy", "reward"} <= set(dev)
    assert dev["reward"] > 0 > -dev["loss"]


def test_a_function_of_selections_is_a_reward(tiny_config: RunConfig, tmp_path: Path) -> None:
    reward = {"model": "plugged_rewards:score", "sparsity_cost": 0.0}
    config = of(tiny_config, reward=reward, phases=ALONE)
    events = list(train(config, tmp_path / "run"))
    assert isinstance(events[-1], Finished)
    rows = read_metrics(tmp_path / "run").to_pylist()
    kept = [row["value"] for row in rows if row["tag"] == "dev/thresholded/kept"]
    assert kept[-1] > kept[0]
