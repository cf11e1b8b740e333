"""Means over seeds and folds, and what the files of a table say, by hand."""

from __future__ import annotations

import csv
import json
import math
import shutil
from dataclasses import replace
from io import BytesIO, StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.image import imread
from table_runs import make_table, report_by_hand, table_tree
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams import plugin_data_pb2

from rss_rl.data.store import Prepared
from rss_rl.errors import CheckpointError
from rss_rl.results import output
from rss_rl.results.summary import Spread
from rss_rl.results.tables.plan import Plan, plan_runs, state_of
from rss_rl.results.tables.report import as_csv, as_markdown, draw, runs_as_csv, write_table
from rss_rl.results.tables.results import collect_results
from rss_rl.results.tables.timing import Timing, identity, read_timings, write_timings

OURS, PUBLISHED = "#0b5394", "#d9730d"
MACHINE = {"processor": "P", "cores": 2, "load_before": 1}


def folded(**changes: Any) -> dict[str, Any]:
    """Two datasets; of the second, three folds."""
    tree = table_tree(**changes)
    second = dict(tree["datasets"][0], name="cr", label="CR", folds=3, seeds=1)
    tree["datasets"].append(second)
    tree["rows"][1]["published"] = {"cr": {"accuracy": 84.85}}
    return tree


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    return plan_runs("own", make_table(**folded()), tmp_path)


def test_runs_and_their_places(plan: Plan, tmp_path: Path) -> None:
    labels = [run.label for run in plan.runs]
    assert len(labels) == len(set(labels)) == 2 * 2 + 2 * 3
    # Every row's first seed comes before any second one.
    assert [label.rpartition("-")[2] for label in labels] == ["0"] * 8 + ["1"] * 2
    run = next(run for run in plan.runs if run.label == "cr-fold-2/mean/seed-0")
    assert run.path == tmp_path / "own" / "cr-fold-2" / "mean" / "seed-0"
    assert run.config.data == str(tmp_path / "data" / "cr-fold-2")
    assert run.config.model.encoder.name == "mean"
    assert {run.config.seed for run in plan.runs} == {0, 1}


def test_folds_of_several_datasets_take_turns(tmp_path: Path) -> None:
    tree = folded()
    tree["datasets"].append(dict(tree["datasets"][1], name="mpqa", label="MPQA"))
    plan = plan_runs("own", make_table(**tree), tmp_path, rows=["mean"], datasets=["cr", "mpqa"])
    assert [run.fold.name for run in plan.runs] == [
        f"{name}-fold-{fold}" for fold in range(3) for name in ("cr", "mpqa")
    ]


def test_what_is_chosen(tmp_path: Path) -> None:
    table = make_table(**folded())
    chosen = plan_runs("own", table, tmp_path, rows=["mean"], datasets=["planted"], seeds=[4, 7])
    assert [run.label for run in chosen.runs] == ["planted/mean/seed-4", "planted/mean/seed-7"]


def test_over_seeds(plan: Plan) -> None:
    resan, _ = plan.rows
    first, second = plan.runs_of(resan, plan.datasets[0])
    report_by_hand(first, accuracy=0.5, kept=0.25)
    report_by_hand(second, accuracy=0.7, kept=0.35)
    (result, *_) = collect_results(plan, {})
    assert (result.runs, result.planned, result.seeds, result.folds) == (2, 2, 2, 0)
    assert result.metrics["accuracy"] == pytest.approx(Spread(0.6, math.sqrt(0.02)))
    assert result.kept == pytest.approx(Spread(0.3, math.sqrt(0.005)))
    assert result.parameters == 123456


def test_over_folds(tmp_path: Path) -> None:
    """Seeds .1 and .3, .5 and .5, .2 and .6 of three folds: means .2 .5 .4 and nothing else."""
    plan = plan_runs("own", make_table(**folded()), tmp_path, seeds=[0, 1], datasets=["cr"])
    scores = {(0, 0): 0.1, (0, 1): 0.3, (1, 0): 0.5, (1, 1): 0.5, (2, 0): 0.2, (2, 1): 0.6}
    for run in plan.runs_of(plan.rows[1], plan.datasets[0]):
        assert run.fold.number is not None
        report_by_hand(run, accuracy=scores[run.fold.number, run.seed], kept=1.0)
    result = collect_results(plan, {})[1]
    mean = 1.1 / 3
    squares = (0.2 - mean) ** 2 + (0.5 - mean) ** 2 + (0.4 - mean) ** 2
    assert result.metrics["accuracy"] == pytest.approx(Spread(mean, math.sqrt(squares / 2)))
    assert (result.runs, result.seeds, result.folds) == (6, 2, 3)
    assert "| Mean | 3 folds × 2 | 36.7 (15.3) | 84.85 |" in as_markdown(
        plan, collect_results(plan, {}), {}
    )


def test_a_single_run_has_no_deviation_and_a_missing_metric_no_column(plan: Plan) -> None:
    (run, *_) = plan.runs_of(plan.rows[1], plan.datasets[0])
    report_by_hand(run, accuracy=0.5)
    result = collect_results(plan, {})[1]
    assert result.metrics["accuracy"] == Spread(0.5, None)
    assert result.kept is None
    assert "| Mean | 1 of 2 | 50.0 | 0.12 M |" in as_markdown(plan, [result], {})


def test_changed_interrupted_damaged(plan: Plan, tmp_path: Path) -> None:
    run = plan.runs[0]
    assert state_of(run) == "missing"
    report_by_hand(run, accuracy=0.5)
    assert state_of(run) == "finished"
    other = replace(run, config=run.config.model_copy(update={"batch_size": 3}))
    assert state_of(other) == "changed"
    moved = replace(run, config=run.config.model_copy(update={"data": "/elsewhere"}))
    assert state_of(moved) == "finished"
    for place, name in ((run.path / "inputs", "a"), (run.fold.prepared, "b")):
        place.mkdir(parents=True)
        (place / "manifest.json").write_text(f'{{"name": "{name}"}}')
    assert state_of(run) == "changed"
    (run.path / "inputs" / "manifest.json").unlink()
    (run.path / "report.json").write_text('{"splits": {"test": {}}, "parameters": 1, "seed": 0}')
    with pytest.raises(CheckpointError, match="no scores of test with mode 'thresholded'"):
        collect_results(plan, {})
    (run.path / "report.json").unlink()
    assert state_of(run) == "interrupted"


def test_data_of_an_earlier_version_are_the_same(plan: Plan, tiny: Prepared) -> None:
    """It named a folder of subword vectors by its path."""
    run = plan.runs[0]
    report_by_hand(run, accuracy=0.5)
    for place, name in (
        (run.path / "inputs", "static:/home/me/model"),
        (run.fold.prepared, "static:model"),
    ):
        place.mkdir(parents=True)
        record = tiny.manifest.model_dump(mode="json")
        record["sources"] = [{"name": name, "sha256": "0" * 64}]
        (place / "manifest.json").write_text(json.dumps(record))
    assert state_of(run) == "finished"


def full(plan: Plan) -> dict[str, dict[str, Timing]]:
    """All runs finished, and times of the first dataset."""
    for number, run in enumerate(plan.runs):
        report_by_hand(run, accuracy=0.5 + 0.01 * number, kept=0.5)
    resan, mean = (plan.runs_of(row, plan.datasets[0])[0] for row in plan.rows)
    return {
        "planted": {
            "resan": Timing((0.2, 0.1, 0.4), (3.0, 1.0, 2.0), 10, identity(resan)),
            "mean": Timing((0.05,), (0.5,), 10, identity(mean)),
        }
    }


def test_markdown(plan: Plan) -> None:
    timings = full(plan)
    text = as_markdown(plan, collect_results(plan, timings), MACHINE)
    lines = text.splitlines()
    assert lines[0] == "# A trial"
    assert "| ReSAN | 54.0 (5.7) / *86.3 (0.2)* | 54.0 (2.0) |" in lines
    assert "| Mean | 55.0 (5.7) | 55.0 (2.0) / *84.85* |" in lines
    first = lines.index("## planted")
    assert lines[first + 2] == (
        "| model | runs | accuracy % | published | kept | parameters | published parameters "
        "| epoch s | epoch × ReSAN | inference s | inference × ReSAN |"
    )
    assert lines[first + 4] == (
        "| ReSAN | 2 | 54.0 (5.7) | 86.3 (0.2) | 50.0% (0.0) | 0.12 M | 3.07 M | 2 | 1.00 | 2 "
        "| 1.00 |"
    )
    assert lines[first + 5].endswith("| 0.12 M | - | 0.5 | 0.25 | 0.5 | 0.25 |")
    assert "processor P, cores 2, load before 1" in lines[-1]


def test_csv(plan: Plan) -> None:
    timings = full(plan)
    rows = list(csv.DictReader(StringIO(as_csv(plan, collect_results(plan, timings)))))
    assert [(row["dataset"], row["row"]) for row in rows] == [
        ("planted", "resan"),
        ("planted", "mean"),
        ("cr", "resan"),
        ("cr", "mean"),
    ]
    first = rows[0]
    assert float(first["accuracy_percent"]) == pytest.approx(54.0)
    assert float(first["accuracy_percent_sd"]) == pytest.approx(math.sqrt(32))
    assert first["accuracy_percent_published"] == "86.3"
    assert first["accuracy_percent_published_sd"] == "0.2"
    assert (first["parameters"], float(first["parameters_published"])) == ("123456", 3.07e6)
    assert (float(first["epoch_s"]), float(first["inference_s"])) == (2.0, 2.0)
    assert float(rows[1]["epoch_ratio"]) == 0.25
    assert (rows[2]["folds"], rows[2]["epoch_s"]) == ("3", "")


def test_a_line_for_each_run(plan: Plan) -> None:
    resan, mean = plan.rows
    first, second = plan.runs_of(resan, plan.datasets[0])
    report_by_hand(first, accuracy=0.5, kept=0.25)
    report_by_hand(second, accuracy=0.7, kept=0.35)
    report_by_hand(plan.runs_of(mean, plan.datasets[1])[2], accuracy=0.4)
    (second.path / "provenance.json").write_text('{"commit": "abc-dirty"}')
    rows = list(csv.DictReader(StringIO(runs_as_csv(plan))))
    known = [(r["place"], r["row"], r["seed"], r["accuracy"]) for r in rows]
    assert known == [
        ("planted", resan.name, "0", "0.5"),
        ("cr-fold-2", mean.name, "0", "0.4"),
        ("planted", resan.name, "1", "0.7"),
    ]
    assert (rows[0]["kept"], rows[0]["parameters"]) == ("0.25", "123456")
    assert [row["commit"] for row in rows] == ["", "", "abc-dirty"]


def test_no_finished_runs_make_a_header_alone(plan: Plan) -> None:
    assert runs_as_csv(plan) == "place\n"


def test_files(plan: Plan) -> None:
    timings = full(plan)
    write_timings(plan.folder / "timing.json", MACHINE, timings)
    assert read_timings(plan.folder / "timing.json") == (MACHINE, timings)
    files = write_table(plan)
    markdown = (plan.folder / "table.md").read_text()
    assert [file.name for file in files] == [
        "table.md",
        "table.csv",
        "runs.csv",
        "table.png",
    ]
    assert "epoch s" in markdown
    picture = imread(files[3])
    assert min(picture.shape[:2]) > 200
    # The legend has a point of each colour; every row has more of them.
    results = collect_results(plan, {})
    without_theirs = [
        replace(result, row=result.row.model_copy(update={"published": {}})) for result in results
    ]
    without_ours = [replace(result, metrics={}) for result in results]
    for colour, without in ((PUBLISHED, without_theirs), (OURS, without_ours)):
        legend_alone = coloured(imread(BytesIO(draw(plan, without))), colour)
        assert coloured(picture, colour) > 1.5 * legend_alone


def test_tensorboard_lists_runs_with_what_differs_and_their_scores_of_dev(plan: Plan) -> None:
    resan, mean = (plan.runs_of(row, plan.datasets[0])[0] for row in plan.rows)
    for run, value in ((resan, 0.5), (mean, 0.75)):
        report_by_hand(run, dev={"accuracy": value, "kept": 0.25, "loss": 1.0}, accuracy=0.1)
    write_table(plan)
    folder = plan.folder / "tensorboard"
    found = {path.name: EventAccumulator(str(path)).Reload() for path in folder.iterdir()}
    assert set(found) == {"planted_resan_seed-0", "planted_mean_seed-0"}
    said = {name: session(events) for name, events in found.items()}
    given = said["planted_mean_seed-0"]
    assert (given["dataset"], given["row"], given["seed"]) == ("planted", "mean", 0)
    assert (given["model.encoder.name"], given["phases.0.name"]) == ("mean", "all")
    assert said["planted_resan_seed-0"]["phases.1.policy"] is True
    assert "phases.1.policy" not in given  # no second phase
    assert not {"data", "batch_size", "policy.options.hidden"} & set(given)  # equal, or the place
    for name, value in (("planted_resan_seed-0", 0.5), ("planted_mean_seed-0", 0.75)):
        assert sorted(found[name].Tags()["scalars"]) == ["dev/accuracy", "dev/kept"]
        (point,) = found[name].Scalars("dev/accuracy")
        assert (point.step, point.value) == (7, value)


def session(events: EventAccumulator) -> dict[str, Any]:
    """Settings of a run, as the HPARAMS tab reads them."""
    (content,) = events.PluginTagToContent("hparams").values()
    record = plugin_data_pb2.HParamsPluginData.FromString(content).session_start_info
    return {
        name: getattr(value, value.WhichOneof("kind")) for name, value in record.hparams.items()
    }


def test_a_table_written_again_lists_no_run_that_is_gone(plan: Plan) -> None:
    first, second = plan.runs_of(plan.rows[0], plan.datasets[0])
    report_by_hand(first, accuracy=0.5)
    report_by_hand(second, accuracy=0.5)
    write_table(plan)
    (foreign := plan.folder / "tensorboard" / "mine").mkdir()
    shutil.rmtree(first.path)
    write_table(plan)
    left = sorted(path.name for path in foreign.parent.iterdir())
    assert left == ["mine", "planted_resan_seed-1"]


def test_error_bars_are_of_several_runs() -> None:
    assert output.whiskers([None, None]) is None
    found = output.whiskers([0.1, None], 100)
    assert found is not None
    assert found[0] == pytest.approx(10)
    assert math.isnan(found[1])


def coloured(pixels: Any, colour: str) -> int:
    """Pixels [H, W, 4] of about the colour `#rrggbb`."""
    rgb = [int(colour[place : place + 2], 16) for place in (1, 3, 5)]
    return int((np.abs(pixels[..., :3] * 255 - rgb).max(-1) < 3).sum())


def test_times_of_another_configuration_are_not_shown(plan: Plan) -> None:
    timings = full(plan)
    timings["planted"]["mean"] = replace(timings["planted"]["mean"], run="another")
    write_timings(plan.folder / "timing.json", MACHINE, timings)
    lines = write_table(plan)[0].read_text().splitlines()
    assert lines[lines.index("## planted") + 5].endswith("| - | - | - | - |")


def test_a_metric_of_nothing_finished_heads_the_overview(tmp_path: Path) -> None:
    plan = plan_runs("own", make_table(**folded(metrics=["pearson", "accuracy"])), tmp_path)
    no_figures = [row.model_copy(update={"published": {}}) for row in plan.rows]
    bare = replace(plan, rows=tuple(no_figures))
    text = as_markdown(bare, collect_results(bare, {}), {})
    assert "| model | planted, Pearson r | CR, Pearson r |" in text


def test_markdown_of_labels_and_published_counts(plan: Plan) -> None:
    """A bar in a label ends no cell; a published count has no more places than were published."""
    row = plan.rows[0].model_copy(
        update={"label": "A|B", "published": {"planted": {"parameters": 2.8e6}}}
    )
    (result, *_) = collect_results(replace(plan, rows=(row,)), {})
    text = as_markdown(plan, [result], {})
    assert "| A\\|B | 0 of 2 | 2.8 M |" in text


@pytest.mark.parametrize("text", ["[]", "{}", '{"schema_version": 2}', "{"])
def test_damaged_times(text: str, tmp_path: Path) -> None:
    file = tmp_path / "timing.json"
    file.write_text(text)
    with pytest.raises(CheckpointError, match="measured again"):
        read_timings(file)
    file.unlink()
    assert read_timings(file) == ({}, {})


def test_published_figures_alone(tmp_path: Path) -> None:
    tree = table_tree()
    tree["rows"][0] |= {"runs": False}
    plan = plan_runs("own", make_table(**tree), tmp_path)
    assert {run.row.name for run in plan.runs} == {"mean"}
    table = write_table(plan)[0].read_text()
    assert "| *ReSAN* | - | 86.3 (0.2) | 3.07 M |" in table
