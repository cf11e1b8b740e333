"""Sweeps without training: what a specification plans, what it refuses, and what runs show."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from rich.console import Console
from tiny_runs import tiny_tree

from rss_rl.api.sweep import sweep
from rss_rl.api.sweep_runs import Sweep
from rss_rl.config import parse_config
from rss_rl.errors import CheckpointError, ConfigError
from rss_rl.packaged import find_sweep, packaged_sweeps
from rss_rl.results.sweeps.plan import PlannedRun, find_base, plan_runs, state_of
from rss_rl.results.sweeps.report import published, write_sweep
from rss_rl.results.sweeps.spec import Spec, load_spec
from rss_rl.runs.run_directory import RunDirectory

RATE = "learner.policy.learning_rate"


def tree(place: Path, **changes: Any) -> dict[str, Any]:
    """Two rows, of which one goes through two shares, on one dataset, with two seeds."""
    base = place / "tiny.yaml"
    base.write_text(json.dumps(tiny_tree(place / "prepared")))
    whole = {"policy.name": "select-all", "phases": [{"name": "a", "supervised": True, "steps": 2}]}
    whole["phases"][0]["selection"] = "all"  # type: ignore[index]
    rows = {"rss": {"label": "RSS"}, "whole": {"settings": whole, "axes": {}}}
    made = {"base": str(base), "datasets": {"tiny": {"data": str(place / "prepared")}}, "seeds": 2}
    made |= {"settings": {"evaluation.all_tokens": False}, "rows": rows}
    return made | {"axes": {"reward.target_share": [0.3, 0.6]}} | changes


def planned(spec: Spec, out: Path) -> list[PlannedRun]:
    return plan_runs(spec, find_base(str(spec.base)), out)


def report(run: PlannedRun, **scores: float) -> None:
    """Leaves a finished run behind that scored so."""
    costs = {"steps": 1, "best_step": 1, "wall_seconds": 1.0, "examples_per_second": 1.0}
    costs |= {"parameters": 123456, "seed": run.config.seed}
    with RunDirectory.create(run.path, json.loads(run.config.model_dump_json())) as directory:
        directory.write_report(
            {"splits": {"test": {run.modes[0]: {"kept": 0.5} | scores}}, **costs}
        )


def test_rows_times_axes_times_seeds(tmp_path: Path) -> None:
    runs = planned(load_spec(tree(tmp_path)), tmp_path / "out")
    assert [run.name for run in runs] == [
        f"{row}/seed-{seed}"
        for seed in (0, 1)
        for row in (
            "tiny/rss,reward.target_share=0.3",
            "tiny/rss,reward.target_share=0.6",
            "tiny/whole",
        )
    ]
    shares = [run.config.reward.target_share for run in runs[:3]]
    assert shares == [0.3, 0.6, None]
    assert [run.modes for run in runs[:3]] == [("thresholded",), ("thresholded",), ("all",)]
    assert {run.config.sampler.backend for run in runs} == {"local"}


def test_a_run_is_a_base(tmp_path: Path) -> None:
    """With its settings and data; code that its files name is not run."""
    config = parse_config(tiny_tree(tmp_path / "prepared") | {"batch_size": 5}, where="test")
    with RunDirectory.create(tmp_path / "run", config.model_dump(mode="json")) as run:
        (first, _) = planned(load_spec({"base": str(run.path), "seeds": 2}), tmp_path / "out")
        assert (first.row, first.config.batch_size) == ("run", 5)
        assert first.config.data == str(tmp_path / "prepared")
        file = run.path / "config.yaml"
        file.write_text(file.read_text().replace("name: resan", "name: plugged:GREETING"))
        with pytest.raises(ConfigError, match="plugged:GREETING"):
            planned(load_spec({"base": str(run.path)}), tmp_path / "out")


def test_later_settings_win(tmp_path: Path) -> None:
    on = {"label": "RSS", "settings": {RATE: 0.3}, "settings_on": {"b": {RATE: 0.4}}}
    data = {"a": {"data": "p", "settings": {RATE: 0.2, "batch_size": 8}}, "b": {"data": "p"}}
    made = tree(tmp_path, rows={"plain": {}, "on": on}, datasets=data, axes={}, seeds=[7])
    runs = planned(load_spec(made, [f"{RATE}=0.1", "batch_size=4"]), tmp_path / "out")
    rates = {run.name: run.config.learner.policy.learning_rate for run in runs}
    assert list(rates.values()) == [0.2, 0.3, 0.1, 0.4]
    assert [run.config.batch_size for run in runs] == [8, 8, 4, 4]
    assert {run.config.seed for run in runs} == {7}


def test_key_value_changes_the_specification(tmp_path: Path) -> None:
    given = ["rows=rss", "seeds=1", "axes.reward.target_share=[0.5]", "title=Mine"]
    spec = load_spec(tree(tmp_path), given)
    assert (list(spec.rows), spec.title) == (["rss"], "Mine")
    [run] = planned(spec, tmp_path / "out")
    assert run.config.reward.target_share == 0.5
    given = ["rows.mine.settings.policy.name=top-k", "rows.mine.settings.policy.options.share=0.3"]
    mine = load_spec(tree(tmp_path), [*given, "rows.mine.label=My own"]).rows["mine"]
    assert (mine.settings["policy.options.share"], mine.label) == (0.3, "My own")
    with pytest.raises(ConfigError, match=r"rows: no 'rs'; did you mean 'rss'"):
        load_spec(tree(tmp_path), ["rows=rs"])


def test_folds_and_how_data_are_prepared(tmp_path: Path) -> None:
    source = {"source": "cr", "folder": "cr", "folds": 3}
    source["vectors"] = ["v.txt", "static:words", "encoder:bert"]
    spec = load_spec(tree(tmp_path, datasets={"cr": source}, axes={}), ["root=DATA", "rows=rss"])
    runs = planned(spec, tmp_path / "out")
    assert [run.path.parts[-3] for run in runs] == [f"cr-fold-{n}" for n in (0, 1, 2)] * 2
    assert runs[1].fold.options == {"fold": "1", "folds": "3"}
    named = [Path(name) for name in ("DATA/v.txt", "static:words", "encoder:bert")]
    assert runs[1].fold.vectors == tuple(named)
    other = load_spec(tree(tmp_path, datasets={"cr": source | {"dim": 50}}, axes={}))
    assert planned(other, tmp_path / "out")[0].fold.data != runs[0].fold.data


def test_a_table_is_prepared_and_fitted(tmp_path: Path) -> None:
    pairs = (("fine", "up"), ("dull", "down"))
    rows = [f"{n} {word} films,{label}" for n in range(40) for word, label in pairs]
    table = tmp_path / "reviews.csv"
    table.write_text("\n".join(["text,label", *rows]))
    base = {"data": str(table), "text": "text", "label": "label", "keep": 0.3, "dim": 8}
    spec = load_spec({"base": base, "seeds": 2, "settings": {"phases.0.steps": 20}})
    printed = io.StringIO()
    runs = Sweep(spec, tmp_path / "out", Console(file=printed)).runs
    assert "phases.1.steps" in printed.getvalue()
    assert "phases.0.steps" not in printed.getvalue()  # what is asked for is not chosen
    assert runs[0].config.phases[0].steps == 20
    assert [run.path.name for run in runs] == ["seed-0", "seed-1"]
    config = runs[1].config
    assert (config.reward.target_share, config.seed, config.policy.name) == (0.3, 1, "rss")
    with pytest.raises(ConfigError, match="'labels' is unknown or missing"):
        Sweep(load_spec({"base": base | {"labels": "x"}}), tmp_path / "out", Console(quiet=True))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"axes": {"reward.target_shar": [0.1]}}, "unknown key 'reward.target_shar'; did you mean"),
        ({"rows": {"x": {"settings": {"batch_size": 0}}}}, "batch_size: Input should be"),
        ({"settings": {"seed": 1}}, "seed is not set in a sweep. Give seeds"),
        ({"settings": {"data": "x"}}, "data is not set in a sweep. Give datasets"),
        ({"axes": {"sampler.backend": ["ray"]}}, "--jobs trains several runs"),
        ({"rows": {"x": {"settings_on": {"tin": {}}}}}, "no dataset 'tin'; did you mean 'tiny'"),
        ({"datasets": {"x": {}}}, r"datasets\.x: give one of source, table and data"),
        ({"datasets": {"x": {"table": {"data": "x"}}}}, "a table has data, text and label"),
        ({"datasets": {"data": {"data": "x"}}}, "is for the data that it prepares"),
        ({"datasets": {"../x": {"data": "x"}}}, "datasets"),
        ({"settings": {"reward.target_share": 0.2}}, r"is an axis: give axes\.reward"),
        ({"rowz": {}}, "unknown key 'rowz'; did you mean 'rows'"),
    ],
)
def test_what_is_refused_names_its_key(changes: dict[str, Any], said: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=said):
        planned(load_spec(tree(tmp_path, **changes)), tmp_path / "out")


def test_states(tmp_path: Path) -> None:
    first, *_ = planned(load_spec(tree(tmp_path)), tmp_path / "out")
    assert state_of(first) == "missing"
    nothing = sweep(tree(tmp_path), out=tmp_path / "out", only_read=True)
    assert ("| RSS | 0.3 | 0 of 2 |" in nothing.markdown, len(nothing.frame)) == (True, 0)
    with RunDirectory.create(first.path, json.loads(first.config.model_dump_json())):
        assert state_of(first) == "interrupted"
    report(first, accuracy=0.5)
    assert state_of(first) == "finished"
    other, *_ = planned(load_spec(tree(tmp_path), ["batch_size=4"]), tmp_path / "out")
    assert state_of(other) == "changed"
    with pytest.raises(CheckpointError, match="made with other settings or data"):
        sweep(tree(tmp_path), ["batch_size=4"], out=tmp_path / "out")


def test_the_table_and_the_frame(tmp_path: Path) -> None:
    runs = planned(load_spec(tree(tmp_path)), tmp_path / "out")
    for number, run in enumerate(runs):
        if number != 2:  # the first seed of the row that keeps all words
            report(run, accuracy=0.5 + 0.1 * number, kept=[0.3, 0.6, 1.0][number % 3])
    result = sweep(tree(tmp_path), out=tmp_path / "out", only_read=True)
    assert "| RSS | 0.3 | 2 | 65.0% (21.2%) | 30.0% (0.0%) | 0.12 M |" in result.markdown
    assert "| whole | - | 1 of 2 | 100.0% | 100.0% | 0.12 M |" in result.markdown
    frame = pd.read_parquet(tmp_path / "out" / "sweep.parquet")
    assert len(frame) == 5
    assert frame["reward.target_share"].tolist()[:2] == [0.3, 0.6]
    assert {"seed", "policy.name", "row", "accuracy"} <= {*frame}
    assert "batch_size" not in frame  # all runs have the same
    assert (tmp_path / "out" / "sweep.md").read_text() == result.markdown


def test_recorded_rows_stand_beside_and_are_not_trained(tmp_path: Path) -> None:
    data = {"a": {"data": "p"}, "b": {"data": "p"}}
    made = tree(tmp_path, rows={"x": {}, "y": {}}, datasets=data, axes={}, seeds=1)
    made |= {"ranked": ["accuracy"]}
    for run, accuracy in zip(planned(load_spec(made), tmp_path), (0.8, 0.6, 0.7, 0.9), strict=True):
        report(run, accuracy=accuracy)
    sweep(made, out=tmp_path, only_read=True)
    made |= {"recorded": str(tmp_path / "sweep.csv")}
    own = ["rows.mine.settings.batch_size=4"]
    runs = planned(load_spec(made, own), tmp_path / "mine")
    assert [run.name for run in runs] == ["a/mine/seed-0", "b/mine/seed-0"]
    for run, accuracy in zip(runs, (0.7, 0.95), strict=True):
        report(run, accuracy=accuracy, kept=0.4)
    markdown = sweep(made, own, out=tmp_path / "mine", only_read=True).markdown
    assert "| a | y | 1, recorded | 60.0% | 50.0% |" in markdown
    assert "| b | mine | 1 | 95.0% | 40.0% |" in markdown
    ranks = markdown.partition("## Ranks by accuracy")[2]
    assert re.findall(r"^\| (\w) ?.*\| ([\d.]+) \(", ranks.replace("mine", "m"), re.MULTILINE) == [
        ("m", "1.5"),
        ("x", "2.0"),
        ("y", "2.5"),
    ]
    with pytest.raises(ConfigError, match=r"recorded: .*is no sweep\.csv"):
        planned(load_spec(made, ["recorded=nowhere"]), tmp_path)


def test_a_judged_run_shows_an_independent_reader(tmp_path: Path) -> None:
    made = tree(tmp_path, axes={}, seeds=1, judged=True, metrics=["accuracy", "reader", "leak"])
    [run, _] = planned(load_spec(made), tmp_path / "out")
    report(run, accuracy=0.5)
    assert state_of(run) == "interrupted"  # trained, and not judged
    file = run.path / "report.json"
    told = {"kept": 0.7, "there": 0.6, "low": 0.0, "high": 0.2}
    trojan = {"rows": 9, "reader": {"all": 0.9, "kept": 0.8}, "told": told, "words": []}
    file.write_text(json.dumps(json.loads(file.read_text()) | {"trojan": {"test": trojan}}))
    assert state_of(run) == "finished"
    markdown = sweep(made, out=tmp_path / "out", only_read=True).markdown
    assert "| RSS | 1 | 50.0% | 80.0% | 10.0% | 50.0% |" in markdown


def test_deviations_are_over_folds_of_means_over_seeds(tmp_path: Path) -> None:
    data = {"cr": {"source": "cr", "folds": 2}}
    spec = load_spec(tree(tmp_path, datasets=data, axes={}), ["rows=rss"])
    runs = planned(spec, tmp_path / "out")
    for run, accuracy in zip(runs, (0.1, 0.5, 0.3, 0.7), strict=True):
        report(run, accuracy=accuracy)
    markdown = write_sweep(spec, runs, ["finished"] * 4, tmp_path / "out")[1]
    assert "| RSS | 4 | 40.0% (28.3%) |" in markdown  # of .2 and .6


@pytest.mark.parametrize("name", packaged_sweeps())
def test_shipped_specifications(name: str, tmp_path: Path) -> None:
    """Each can be planned, and a row of each table that names papers has figures of them."""
    spec = load_spec(find_sweep(name))
    runs = plan_runs(spec, find_base(str(spec.base)), tmp_path)
    assert runs or spec.recorded
    figures = {*published(spec)}
    found = figures & {(run.fold.dataset, run.row) for run in runs}
    assert bool(spec.published) == bool(found)
    assert name in ("trecqa", "lambada", "shares", "policies") or found


def test_the_recorded_table_of_policies_is_in_the_documents(
    repository: Path, tmp_path: Path
) -> None:
    """Ranks are as `docs/results/policies.md` has them."""
    result = sweep("policies", out=tmp_path, only_read=True)
    assert "| 1, recorded |" in result.markdown
    page = (repository / "docs" / "results" / "policies.md").read_text(encoding="utf-8")
    tables = re.findall(
        r"^\| model \|.*\| mean rank \|\n(?:\|.*\n)+", result.markdown, re.MULTILINE
    )
    assert len(tables) == 2
    assert all(each in page for each in tables)
