"""How often each training row counts: of a column, of classes that are balanced, of both."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rss_rl
from rss_rl.config import RunConfig
from rss_rl.data.store import Prepared
from rss_rl.errors import ConfigError, DataError
from rss_rl.training.learner import example_weights
from rss_rl.training.trainer import find_best_metric

WORDS = {"common": "warm bright", "rare": "cold dull"}


def table(weights: list[Any] | None = None, label: str = "label") -> list[dict[str, Any]]:
    kinds = ["common"] * 9 + ["rare"] * 3
    rows = [
        {"text": f"row {number} {WORDS[kind]}", "label": kind, "number": number / 7}
        for number, kind in enumerate(kinds)
    ]
    if weights is not None:
        rows = [row | {"often": weight} for row, weight in zip(rows, weights, strict=True)]
    return rows


def prepared(folder: Path, rows: list[dict[str, Any]], **more: Any) -> Any:
    more = {"label": "label"} | more
    if "often" in rows[0]:
        more["weight"] = "often"
    data = rss_rl.prepare(rows, dev=rows, test=rows, text="text", out=folder / "data", **more)
    return data.split("train")


def test_classes_and_columns_give_one_weight_a_row(tmp_path: Path) -> None:
    plain = prepared(tmp_path / "a", table())
    assert example_weights(plain) is None
    balanced = example_weights(plain, "balanced")
    np.testing.assert_allclose(balanced, [12 / 18] * 9 + [2.0] * 3, rtol=1e-6)
    often = [1, 2, 3] * 4
    weighed = prepared(tmp_path / "b", table(often))
    np.testing.assert_allclose(example_weights(weighed), np.array(often) / 2, rtol=1e-6)
    both = example_weights(weighed, "balanced")
    assert both is not None
    assert both.mean() == pytest.approx(1)
    assert both[:9].sum() == pytest.approx(both[9:].sum())
    np.testing.assert_allclose(both[:3] / both[0], [1, 2, 3], rtol=1e-6)


@pytest.mark.parametrize("bad", [0, -1, "often", float("nan"), 1e30])
def test_what_is_no_weight_is_named_with_its_row(tmp_path: Path, bad: Any) -> None:
    weights = [str(weight) for weight in [1.0] * 4 + [bad] + [1.0] * 7]
    with pytest.raises(DataError, match="column 'often': '.*' is no weight"):
        prepared(tmp_path, table(weights))


def test_scores_are_no_classes_to_balance(tmp_path: Path) -> None:
    scores = prepared(tmp_path, table(), label="number", task="score")
    with pytest.raises(ConfigError, match="only classes can be balanced, and the label is a score"):
        example_weights(scores, "balanced")


def test_balanced_classes_are_best_by_macro_f1(tiny_config: RunConfig, tiny: Prepared) -> None:
    assert find_best_metric(tiny_config, tiny).name == "accuracy"
    learner = tiny_config.learner.model_copy(update={"class_weight": "balanced"})
    balanced = tiny_config.model_copy(update={"learner": learner})
    assert find_best_metric(balanced, tiny).name == "macro_f1"
    named = tiny_config.evaluation.model_copy(update={"best_metric": "loss"})
    assert find_best_metric(balanced.model_copy(update={"evaluation": named}), tiny).name == "loss"
