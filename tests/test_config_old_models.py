"""Keys of `model` that b9a4141 had, in files, resolved configurations and overrides."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from model_configs import VECTOR_ENCODERS

from rss_rl.config import load_config, parse_config
from rss_rl.errors import ConfigError
from rss_rl.packaged import find_config

PHASES = [{"name": "one", "supervised": True, "steps": 1}]
DEFAULTS: dict[str, Any] = {
    "attention_heads": 8,
    "block_global": True,
    "block_length": None,
    "block_local": True,
    "cloze_entities": 600,
    "cloze_output": "pointer",
    "cnn_filters": 200,
    "cnn_layers": 3,
    "cnn_window": 5,
    "cnn_windows": [3, 4, 5],
    "highway": True,
    "keep_unselected": False,
    "reader": "sequential",
    "reader_hidden": 128,
    "unselected_context": "real",
}
"""What every resolved configuration of b9a4141 had of its own."""

OPTIONS: dict[str, dict[str, Any]] = {
    "resan": {"keep_unselected": True, "unselected_context": "dependents"},
    "biblosan": {"block_length": 7, "local": False, "across": True},
    "multi-head": {"heads": 4},
    "cnn": {"windows": [2, 3], "filters": 5},
    "hierarchical-cnn": {"layers": 2, "window": 3},
}
CHANGED = DEFAULTS | {
    "attention_heads": 4,
    "block_length": 7,
    "block_local": False,
    "cnn_filters": 5,
    "cnn_layers": 2,
    "cnn_window": 3,
    "cnn_windows": [2, 3],
    "keep_unselected": True,
    "unselected_context": "dependents",
}


def resolved(**model: Any) -> dict[str, Any]:
    tree = {"data": "d", "phases": PHASES, "model": model}
    return parse_config(tree, where="old.json").model_dump(mode="json")["model"]


@pytest.mark.parametrize("name", VECTOR_ENCODERS)
def test_an_encoder_gets_the_options_that_are_its_own(name: str) -> None:
    model = resolved(encoder=name, **CHANGED)
    assert model["encoder"] == {"name": name, "options": OPTIONS.get(name, {})}
    assert model["classifier"] is None
    assert resolved(**model) == model


def test_without_a_name_the_keys_are_those_of_the_default_encoder() -> None:
    assert resolved(**CHANGED)["encoder"] == {"name": "resan", "options": OPTIONS["resan"]}


@pytest.mark.parametrize(
    ("changed", "classifier"),
    [
        ({}, None),
        ({"highway": False}, ("sentences", {"highway": False})),
        ({"reader": "stanford"}, ("cloze", {"attention": "stanford"})),
        (
            {"cloze_output": "entities", "cloze_entities": 9, "reader_hidden": 5},
            ("cloze", {"output": "entities", "entities": 9, "hidden": 5}),
        ),
    ],
)
def test_a_classifier_is_named_where_its_keys_were_changed(
    changed: dict[str, Any], classifier: tuple[str, dict[str, Any]] | None
) -> None:
    found = resolved(**DEFAULTS | changed)["classifier"]
    if classifier is None:
        assert found is None
        return
    name, options = classifier
    assert found["name"] == name
    assert found["options"].items() >= options.items()


@pytest.mark.parametrize(
    ("config", "overrides", "options"),
    [
        ("sick", ["model.keep_unselected=false"], {"keep_unselected": False}),
        ("sick_faithful", ["model.keep_unselected=true"], {"keep_unselected": True}),
        ("sick", ["model.encoder.options.keep_unselected=false"], {"keep_unselected": False}),
        ("sick", ["model.encoder=cnn", "model.cnn_windows=[2]"], {"windows": [2]}),
        ("paper/snli_biblosan", ["model.block_global=false"], {"across": False}),
    ],
)
def test_overrides_with_old_keys_reach_shipped_configurations(
    config: str, overrides: list[str], options: dict[str, Any]
) -> None:
    found = load_config(find_config(config), overrides).model.encoder.options
    assert found.items() >= options.items()


def test_an_old_key_at_its_default_reaches_a_classifier_that_is_named() -> None:
    config = load_config(find_config("paper/cnn_stanford"), ["model.reader=sequential"])
    assert config.model.classifier is not None
    assert config.model.classifier.options["attention"] == "sequential"


@pytest.mark.parametrize(
    ("base", "over", "wanted"),
    [
        ("mean", {"options": {}}, ("mean", {})),
        (
            {"name": "cnn", "options": {"filters": 3}},
            {"name": "cnn", "options": {"windows": [2]}},
            ("cnn", {"filters": 3, "windows": [2]}),
        ),
        ({"name": "cnn", "options": {"filters": 3}}, "mean", ("mean", {})),
        ({"name": "cnn", "options": {"filters": 3}}, {"name": "mean"}, ("mean", {})),
    ],
)
def test_a_slot_is_merged_with_that_of_the_file_that_is_extended(
    tmp_path: Path, base: Any, over: Any, wanted: tuple[str, dict[str, Any]]
) -> None:
    tree = {"data": "d", "phases": PHASES, "model": {"encoder": base}}
    (tmp_path / "base.yaml").write_text(yaml.safe_dump(tree))
    child = {"extends": "base.yaml", "model": {"encoder": over}}
    (tmp_path / "child.yaml").write_text(yaml.safe_dump(child))
    encoder = load_config(tmp_path / "child.yaml").model.encoder
    assert (encoder.name, encoder.options) == wanted


def test_a_classifier_for_other_labels_is_refused_when_it_is_built() -> None:
    import numpy as np

    from rss_rl.models.build import build_classifier
    from rss_rl.types import LabelSpec

    tree = {"data": "d", "phases": PHASES, "model": {"classifier": "passage"}}
    model = parse_config(tree, where="f").model
    with pytest.raises(ConfigError, match="'passage' is not for labels.* classes.*sentences"):
        build_classifier(
            model, LabelSpec("classes", ("a", "b")), 1, np.zeros((4, 2), np.float32), 4
        )
