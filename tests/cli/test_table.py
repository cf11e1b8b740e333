"""`rss-rl table` prepares, trains what is missing, measures, and says what failed."""

from __future__ import annotations

import csv
import json
import shutil
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from table_runs import run_table as run
from table_runs import table_tree, write_table_file

from rss_rl.results.tables.timing import read_timings


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the table file, and the table made from it in `out`."""
    place = tmp_path_factory.mktemp("table")
    result = run(write_table_file(place / "own.yaml"), "--out", place / "out")
    assert result.exit_code == 0, result.output
    (place / "said.txt").write_text(result.output)
    return place


@pytest.fixture
def copied(made: Path, tmp_path: Path) -> Path:
    """The same, to be changed; runs find their data by where they lie now."""
    shutil.copytree(made, tmp_path / "copy")
    return tmp_path / "copy"


def test_all_at_once(made: Path) -> None:
    said = (made / "said.txt").read_text()
    assert said.count("preparing planted\n") == 1
    for row in ("resan", "mean"):
        for seed in (0, 1):
            folder = made / "out" / "own" / "planted" / row / f"seed-{seed}"
            assert json.loads((folder / "report.json").read_text())["seed"] == seed
            assert f"planted/{row}/seed-{seed}: finished after" in said
    assert "[4 of 4 runs over, 0 left]" in said
    table = made / "out" / "own"
    assert (table / "table.md").read_text() in said
    rows = list(csv.DictReader(StringIO((table / "table.csv").read_text())))
    reports = [json.loads(file.read_text()) for file in table.glob("*/mean/*/report.json")]
    scores = [report["splits"]["test"]["all"]["accuracy"] for report in reports]
    assert float(rows[1]["accuracy_percent"]) == pytest.approx(100 * sum(scores) / 2)
    assert float(rows[1]["kept"]) == 1.0
    assert (table / "table.png").stat().st_size > 5000


def test_times(made: Path) -> None:
    machine, timings = read_timings(made / "out" / "own" / "timing.json")
    assert machine["cores"] > 0
    assert machine["processor"]
    for timing in timings["planted"].values():
        assert timing.updates_an_epoch == 3
        assert (len(timing.update_s), len(timing.inference_s)) == (5, 3)
        assert timing.epoch == pytest.approx(3 * sorted(timing.update_s)[2])
        assert timing.inference == sorted(timing.inference_s)[1]
    # Sampling, two modules for selection, attention and a second loss cost more than a mean.
    assert timings["planted"]["resan"].epoch > timings["planted"]["mean"].epoch


def test_again_there_is_nothing_to_do(copied: Path) -> None:
    before = {file: file.read_bytes() for file in copied.rglob("*") if file.is_file()}
    result = run(copied / "own.yaml", "--out", copied / "out")
    assert result.exit_code == 0, result.output
    assert "begins" not in result.output
    assert "measuring" not in result.output
    after = {file: file.read_bytes() for file in copied.rglob("*") if file.is_file()}
    assert before == after


def test_only_read(copied: Path) -> None:
    shutil.rmtree(copied / "out" / "data")
    shutil.rmtree(copied / "out" / "own" / "planted" / "mean" / "seed-1")
    result = run(copied / "own.yaml", "--out", copied / "out", "--only-read")
    assert result.exit_code == 0, result.output
    assert "begins" not in result.output
    assert "| Mean | 1 of 2 |" in result.output
    assert not (copied / "out" / "data").exists()
    refused = run(copied / "own.yaml", "--out", copied / "out", "--only-read", "--timing")
    assert refused.exit_code == 2


def test_dry_run(tmp_path: Path) -> None:
    file = write_table_file(tmp_path / "own.yaml")
    result = run(file, "--out", tmp_path / "out", "--dry-run", "--rows", "mean", "--seeds", "3,1")
    assert result.exit_code == 0, result.output
    assert [line.split()[:2] for line in result.output.splitlines()[1:3]] == [
        ["planted/mean/seed-1", "missing"],
        ["planted/mean/seed-3", "missing"],
    ]
    assert "to be prepared" in result.output
    assert not (tmp_path / "out").exists()


def test_other_settings_are_refused_or_made_again(copied: Path) -> None:
    tree = table_tree()
    tree["rows"][1]["settings"]["learner.supervised.learning_rate"] = 0.5
    command = (write_table_file(copied / "own.yaml", **tree), "--out", copied / "out")
    refused = run(*command)
    assert refused.exit_code == 2
    assert "planted/mean/seed-0 and 1 more: made with other settings" in refused.output
    result = run(*command, "--again", "--no-timing")
    assert result.exit_code == 0, result.output
    assert "planted/mean/seed-1: finished" in result.output
    assert "planted/resan/seed-0: begins" not in result.output
    config = json.loads((copied / "out/own/planted/mean/seed-0/config.json").read_text())
    assert config["config"]["learner"]["supervised"]["learning_rate"] == 0.5


def test_data_prepared_otherwise_are_not_mixed_in(copied: Path) -> None:
    shutil.rmtree(copied / "out" / "own")
    tree = table_tree()
    tree["datasets"][0] |= {"dim": 7}
    result = run(write_table_file(copied / "own.yaml", **tree), "--out", copied / "out")
    assert result.exit_code == 1
    assert "prepared with other dim" in result.output
    assert "Failed runs: 4" in result.output


def broken(tree: dict[str, Any]) -> dict[str, Any]:
    """With a row that fails when it begins, and a dataset that nobody has."""
    tree["seeds"] = 1
    bad = dict(tree["rows"][1], name="bad", label="Bad")
    bad["settings"] = {**bad["settings"], "evaluation.best_metric": "pearson"}
    nowhere = dict(tree["datasets"][0], name="nowhere", source="sick-relatedness", folder="sick")
    tree["datasets"].insert(0, nowhere | {"options": {}})
    tree["rows"].insert(0, bad)
    return tree


def test_what_fails_is_listed_and_the_rest_is_made(tmp_path: Path) -> None:
    file = write_table_file(tmp_path / "own.yaml", **broken(table_tree()))
    result = run(file, "--out", tmp_path / "out", "--data-root", tmp_path, "--no-timing")
    assert result.exit_code == 1, result.output
    end = result.output[result.output.index("Failed runs: 4") :]
    assert "planted/bad/seed-0: evaluation.best_metric: this data set's labels are" in end
    missing = f"{tmp_path}/sick: the folder of sick-relatedness is missing. Put it there"
    assert f"nowhere/bad/seed-0 and 2 more: {missing}" in end
    assert "planted/mean/seed-0: finished" in result.output
    assert "| Mean | 1 |" in result.output
    assert "| Bad | 0 of 1 |" in result.output


def test_prepared_data_are_taken_as_they_are(made: Path, tmp_path: Path) -> None:
    tree = table_tree(seeds=1)
    place = {"prepared": str(made / "out" / "data" / "planted")}
    tree["datasets"] = [{**place, "name": "mine", "bases": tree["datasets"][0]["bases"]}]
    tree["rows"][0]["published"] = {}
    file = write_table_file(tmp_path / "own.yaml", **tree)
    result = run(file, "--out", tmp_path / "out", "--rows", "mean", "--no-timing")
    assert result.exit_code == 0, result.output
    assert not (tmp_path / "out" / "data").exists()


def test_a_moved_table_is_gone_on_with(copied: Path) -> None:
    """Its unfinished runs find the data where they lie now."""
    run_directory = copied / "out" / "own" / "planted" / "resan" / "seed-1"
    (run_directory / "report.json").unlink()
    result = run(copied / "own.yaml", "--out", copied / "out", "--no-timing")
    assert result.exit_code == 0, result.output
    config = json.loads((run_directory / "config.json").read_text())["config"]
    assert config["data"] == str(copied / "out" / "data" / "planted")


@pytest.mark.parametrize("place", ["own/planted/mean/seed-1/inputs", "data/planted"])
def test_a_damaged_manifest_is_named(copied: Path, place: str) -> None:
    file = copied / "out" / place / "manifest.json"
    file.write_text("{")
    result = run(copied / "own.yaml", "--out", copied / "out")
    assert result.exit_code == 2, result.output
    assert f"{file}: unreadable" in result.output


def test_out_that_cannot_be_written(made: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    result = run(made / "own.yaml", "--out", tmp_path / "file")
    assert result.exit_code == 2, result.output
    assert "cannot be written: Not a directory. Give --out" in result.output
    assert "preparing" not in result.output


def test_what_cannot_be_written_can_be_read(copied: Path) -> None:
    (copied / "out" / "own" / "table.md").unlink()
    (copied / "out" / "own" / "table.md").mkdir()
    result = run(copied / "own.yaml", "--out", copied / "out", "--only-read")
    assert result.exit_code == 2, result.output
    assert "| Mean | 2 |" in result.output
    assert "the table cannot be written: Is a directory" in result.output


def test_what_another_table_has_finished_is_read_and_not_made(tmp_path: Path) -> None:
    own, out = write_table_file(tmp_path / "own.yaml"), tmp_path / "out"
    assert run(own, "--out", out, "--seeds", "0", "--no-timing").exit_code == 0
    (out / "own" / "planted" / "mean" / "seed-0" / "report.json").unlink()  # not finished after all
    shutil.copy(own, tmp_path / "other.yaml")
    result = run(tmp_path / "other.yaml", "--out", out, "--seeds", "0", "--no-timing")
    assert result.exit_code == 0, result.output
    assert result.output.count(": begins") == 1
    assert "planted/mean/seed-0: finished after" in result.output
    made = [path.parent.parent.name for path in (out / "other").rglob("report.json")]
    assert made == ["mean"]
    header, first, *_ = (out / "own" / "table.csv").read_text().splitlines()
    score = header.split(",").index("accuracy_percent")
    again = (out / "other" / "table.csv").read_text().splitlines()[1]
    assert again.split(",")[score] == first.split(",")[score]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--rows", "men"), "the table has no row 'men'; did you mean 'mean'?"),
        (("--datasets", "plant"), "did you mean 'planted'?"),
        (("--seeds", "0,x"), "is not a list of seeds"),
        (("--seeds", ","), "is not a list of seeds"),
        (("--rows", ""), "--rows names nothing"),
        (("--datasets", ","), "--datasets names nothing"),
    ],
)
def test_wrong_options(arguments: tuple[str, ...], message: str, tmp_path: Path) -> None:
    file = write_table_file(tmp_path / "own.yaml")
    result = run(file, "--out", tmp_path / "out", *arguments)
    assert result.exit_code == 2
    assert message in result.output


def test_help_teaches() -> None:
    text = run("--help").output
    for word in ("--dry-run", "--jobs", "--only-read", "my.yaml", "Ctrl-C"):
        assert word in text
