"""The linear classifier beside a run: what it reads, and where it has nothing to say."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

import rss_rl
from rss_rl.data.store import Prepared, open_prepared
from rss_rl.results.linear import linear_rankings, score_linear

SHARES = {"dev": 0.2, "test": 0.2}
TEXTS = {"good": "not bad but good", "bad": "not good but bad"}
"""Texts whose label only a pair of neighbours tells."""


def prepared_rows(folder: Path, labels: list[str], texts: dict[str, str] = TEXTS) -> Prepared:
    rows = [
        {"text": f"{texts[label]} number{n % 5}", "label": label} for n, label in enumerate(labels)
    ]
    rss_rl.prepare(rows, out=folder, text="text", label="label", dim=2)
    return open_prepared(folder)


def test_it_reads_words_and_pairs_of_words(tmp_path: Path) -> None:
    found = score_linear(prepared_rows(tmp_path / "rows", ["good", "bad"] * 40), SHARES)
    for split in SHARES:
        assert found[split]["linear"] == {"accuracy": 1.0, "kept": 1.0}
        assert found[split]["weights"]["accuracy"] < 0.8  # one word of five
        assert found[split]["weights"]["kept"] == 0.2


@pytest.mark.parametrize("limit", [math.inf, -math.inf])
def test_of_a_large_table_it_learns_by_stochastic_gradients(
    limit: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As right as by second-order steps; with progress, and after the first epoch within its time:
    then not from cut texts."""
    monkeypatch.setattr("rss_rl.results.linear._EXACT", 0)
    seen: list[str] = []
    found = score_linear(
        prepared_rows(tmp_path / "rows", ["good", "bad"] * 100),
        SHARES,
        lambda what, done, end: seen.append(f"{what} {done} {end}"),
        limit,
    )
    assert found["test"]["linear"]["accuracy"] == 1.0
    assert seen.count("a linear classifier: reading 0 160") == 1 + (limit > 0)
    epochs = [what for what in seen if "epoch" in what]
    if limit < 0:
        assert epochs == ["a linear classifier: epoch with C=0.5 1 8"]
        assert len(seen) == 6
    else:
        assert len(epochs) == (4 + 1) * 8


def test_the_largest_weights_are_words_that_tell_classes_apart(tmp_path: Path) -> None:
    texts = {"a": "it is a dull film of", "b": "it is a fine film of", "c": "it is a new film of"}
    prepared = prepared_rows(tmp_path / "rows", ["a", "b", "c"] * 40, texts)
    found = score_linear(prepared, SHARES)
    assert found["test"]["weights"] == {"accuracy": 1.0, "kept": 0.2}
    assert "weights" not in score_linear(prepared, dict.fromkeys(SHARES, 1.0))["test"]
    plain, averaged = linear_rankings(prepared, prepared.split("dev")).values()
    for (weights,), (means,) in zip(plain, averaged, strict=True):
        assert weights.argmax() == means.argmax() == 3
        assert means[2] > 3 * weights[2]  # beside a large one
        assert means[3] == pytest.approx(
            (weights[3] + (weights[2] + weights[4]) / 2 + (weights[1] + weights[5]) / 4) / 2.5
        )


@pytest.mark.parametrize("task", ["score", "classes"])
def test_scores_and_texts_that_share_no_word_have_none(task: Any, tmp_path: Path) -> None:
    rows = [{"text": f"number{n}", "label": (n / 7, n % 2)[task == "classes"]} for n in range(60)]
    rss_rl.prepare(rows, out=tmp_path / "rows", text="text", label="label", task=task, dim=2)
    prepared = open_prepared(tmp_path / "rows")
    assert not score_linear(prepared, SHARES)
    assert not linear_rankings(prepared, prepared.split("dev"))


def test_of_many_sorted_rows_all_classes_are_drawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rss_rl.results.linear._MOST_ROWS", 20)
    prepared = prepared_rows(tmp_path / "rows", ["good"] * 60 + ["bad"] * 60)
    assert score_linear(prepared, SHARES)["dev"]["linear"]["accuracy"] > 0.5
