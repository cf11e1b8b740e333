"""Parameter counts of the published SNLI table, by the formulas; sizes that cannot be."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from model_configs import model_config, parameter_count

from rss_rl.config import ModelConfig, parse_config
from rss_rl.errors import ConfigError
from rss_rl.models.build import build_classifier
from rss_rl.types import LabelSpec

SNLI = LabelSpec("classes", ("contradiction", "entailment", "neutral"))
TABLE = {
    "disan": (2_345_403, 2.35),
    "bilstm": (2_887_203, 2.9),
    "bigru": (2_526_003, 2.5),
    "bisru": (1_983_603, 2.0),
    "cnn": (1_441_803, 1.4),
    "multi-head": (1_982_403, 2.0),
    # Published: 3.4 million, which the formula as it is written does not reach.
    "hierarchical-cnn": (3_243_603, 3.24),
}
"""Parameters by the formula, at E = D = 300; millions published."""


@pytest.mark.parametrize("name", TABLE)
def test_parameter_counts_are_those_of_the_formulas(name: str) -> None:
    number, millions = TABLE[name]
    config = model_config(encoder=name, highway=False)
    model = build_classifier(config, SNLI, 2, np.zeros((4, 300), np.float32), 4)
    assert parameter_count(model, without=model.embedding) == number
    assert abs(number / 1e6 - millions) < 0.05


def parsed(**model: Any) -> ModelConfig:
    phases = [{"name": "one", "supervised": True, "selection": "all", "steps": 1}]
    return parse_config({"data": "some", "phases": phases, "model": model}, where="").model


@pytest.mark.parametrize(
    ("name", "options", "complaint"),
    [
        ("multi-head", {"heads": 0}, "option heads: .* greater than or equal to 1"),
        ("cnn", {"windows": []}, "option windows: .* at least 1 item"),
        ("cnn", {"windows": [3, 0]}, "option windows.1: .* greater than or equal to 1"),
        ("cnn", {"filters": 0}, "option filters: .* greater than or equal to 1"),
        ("hierarchical-cnn", {"layers": 0}, "option layers: .* greater than or equal to 1"),
        ("hierarchical-cnn", {"window": 0}, "option window: .* greater than or equal to 1"),
        ("multihead", {}, "unknown encoder 'multihead'.*'multi-head'"),
    ],
)
def test_impossible_sizes_are_configuration_errors(
    name: str, options: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(ConfigError, match=complaint):
        parsed(encoder={"name": name, "options": options})
