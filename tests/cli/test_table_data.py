"""Where `rss-rl table` has its data from: what is missing, archives, folds, two at once."""

from __future__ import annotations

import fcntl
import json
import threading
import time
import zipfile
from pathlib import Path

import pytest
from table_runs import run_table as run
from table_runs import table_tree, write_table_file

from rss_rl.data.store import open_prepared
from rss_rl.errors import DataError
from rss_rl.results.tables.data import TableData
from rss_rl.results.tables.plan import plan_runs
from rss_rl.results.tables.spec import load_table


def test_what_is_missing_is_said_at_once(tmp_path: Path) -> None:
    tree = table_tree(vectors=["vectors/glove.txt"], seeds=1)
    file = write_table_file(tmp_path / "own.yaml", **tree)
    for root in ((), ("--data-root", tmp_path / "nowhere")):
        tree["datasets"][0]["folder"] = "planted"
        file = write_table_file(tmp_path / "own.yaml", **tree)
        result = run(file, "--out", tmp_path / "out", "--rows", "mean", *root)
        assert result.exit_code == 2
        assert "Give --data-root DIR" in result.output
        assert not (tmp_path / "out").exists()
    del tree["datasets"][0]["folder"]
    file = write_table_file(tmp_path / "own.yaml", **tree)
    result = run(file, "--out", tmp_path / "out", "--rows", "mean", "--data-root", tmp_path)
    assert f"{tmp_path}/vectors/glove.txt: the file of word vectors is missing" in result.output


def test_folds(tmp_path: Path) -> None:
    tree = table_tree(seeds=1)
    tree["datasets"][0] |= {"source": "table_runs:FOLDED", "options": {}, "folds": 2}
    file = write_table_file(tmp_path / "own.yaml", **tree)
    result = run(file, "--out", tmp_path / "out", "--rows", "mean", "--no-timing")
    assert result.exit_code == 0, result.output
    assert "| Mean | 2 folds × 1 |" in result.output
    first, second = (
        open_prepared(tmp_path / "out" / "data" / f"planted-fold-{fold}").split("test")
        for fold in (0, 1)
    )
    ids = [{split.example_id(row) for row in range(len(split))} for split in (first, second)]
    assert not ids[0] & ids[1]
    scores = []
    for fold in (0, 1):
        report = tmp_path / f"out/own/planted-fold-{fold}/mean/seed-0/report.json"
        scores.append(json.loads(report.read_text())["splits"]["test"]["all"]["accuracy"])
    assert f"{50 * sum(scores):.1f} (" in result.output


def test_options_of_a_source_are_values_or_their_texts(tmp_path: Path) -> None:
    """Data prepared under one way to write them are those of the other."""
    tree, prepared = table_tree(seeds=1), []
    for train in ("24", 24, 30):
        few = {"train": train, "dev": 6, "test": "6"}
        tree["datasets"][0] |= {"source": "planted", "options": few}
        plan = plan_runs(
            "own", load_table(write_table_file(tmp_path / "own.yaml", **tree)), tmp_path
        )
        fold = plan.runs[0].fold
        if train == 30:
            with pytest.raises(DataError, match="prepared with other options"):
                TableData(plan.table, None).prepare(fold)
            continue
        TableData(plan.table, None).prepare(fold)
        prepared.append(len(open_prepared(fold.prepared).split("train")))
    assert prepared == [24, 24]


def test_vectors_in_an_archive(tmp_path: Path) -> None:
    """As `rss-rl data fetch glove-6b` leaves them."""
    with zipfile.ZipFile(tmp_path / "glove.zip", "w") as archive:
        archive.writestr("small.txt", "the 0.1 0.2 0.3\nowl 0.3 0.1 0.2\n")
        archive.writestr("other.txt", "the 0.1\n")
    file = write_table_file(tmp_path / "own.yaml", seeds=1)
    command = (file, "--out", tmp_path / "out", "--rows", "mean", "--no-timing", "--vectors")
    result = run(*command, tmp_path / "glove.zip:small.txt")
    assert result.exit_code == 0, result.output
    assert open_prepared(tmp_path / "out" / "data" / "planted").manifest.vectors.dim == 3


def test_two_commands_prepare_once(tmp_path: Path) -> None:
    """The second waits for the first, and takes what that one left."""
    file = write_table_file(tmp_path / "own.yaml")
    plan = plan_runs("own", load_table(file), tmp_path / "out")
    fold, said = plan.runs[0].fold, list[str]()
    fold.prepared.parent.mkdir(parents=True)
    lock = (fold.prepared.parent / ".planted.lock").open("w")
    fcntl.flock(lock, fcntl.LOCK_EX)
    second = threading.Thread(
        target=TableData(plan.table, None, tell=said.append).prepare, args=(fold,)
    )
    second.start()
    while not said:
        assert second.is_alive()
        time.sleep(0.01)
    TableData(plan.table, None)._prepare(fold, "planted")
    lock.close()
    second.join(timeout=30)
    assert not second.is_alive()
    assert said == ["another command is preparing planted: waiting for it"]
