"""The linear classifier beside a run: what it reads, and where it has nothing to say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import rss_rl
from rss_rl.data.store import Prepared, open_prepared
from rss_rl.results.linear import read_linear, score_linear, write_linear
from rss_rl.runs.run_directory import RunDirectory
from rss_rl.training.run import provenance


def prepared_rows(folder: Path, labels: list[str]) -> Prepared:
    """Texts whose label only a pair of neighbours tells."""
    texts = {"good": "not bad but good", "bad": "not good but bad"}
    rows = [
        {"text": f"{texts[label]} number{n % 3}", "label": label} for n, label in enumerate(labels)
    ]
    rss_rl.prepare(rows, out=folder, text="text", label="label", dim=2)
    return open_prepared(folder)


def test_it_reads_words_and_pairs_of_words(tmp_path: Path) -> None:
    found = score_linear(prepared_rows(tmp_path / "rows", ["good", "bad"] * 40))
    assert found is not None
    assert found["accuracy"] == {"dev": 1.0, "test": 1.0}
    assert found["seconds"] >= 0


def test_it_stays_with_the_run_and_its_data(tmp_path: Path) -> None:
    path, data = tmp_path / "run", prepared_rows(tmp_path / "rows", ["good", "bad"] * 40)
    with RunDirectory.create(path, {}) as run:
        run.note_provenance(provenance(data))
    assert read_linear(path) is None
    write_linear(path, data)
    kept = read_linear(path)
    assert kept is not None
    assert set(kept) == {"accuracy", "C", "seconds", "data_sha256"}
    write_linear(path, prepared_rows(tmp_path / "others", ["good", "bad"] * 60))
    assert read_linear(path) is None, "of other data"


@pytest.mark.parametrize("task", ["score", "classes"])
def test_scores_and_texts_that_share_no_word_have_none(task: Any, tmp_path: Path) -> None:
    rows = [{"text": f"number{n}", "label": (n / 7, n % 2)[task == "classes"]} for n in range(60)]
    rss_rl.prepare(rows, out=tmp_path / "rows", text="text", label="label", task=task, dim=2)
    assert score_linear(open_prepared(tmp_path / "rows")) is None


def test_of_many_sorted_rows_all_classes_are_drawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rss_rl.results.linear._MOST_ROWS", 20)
    found = score_linear(prepared_rows(tmp_path / "rows", ["good"] * 60 + ["bad"] * 60))
    assert found is not None
    assert found["accuracy"]["dev"] > 0.5
