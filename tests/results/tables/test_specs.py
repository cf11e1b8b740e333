"""The shipped tables can be made, and a table with a mistake is refused by name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from table_runs import make_table, table_tree, write_table_file

from rss_rl.config import RunConfig
from rss_rl.errors import ConfigError
from rss_rl.packaged import find_table, packaged_configs, packaged_tables
from rss_rl.results.tables.plan import configure
from rss_rl.results.tables.spec import Dataset, Row, Table, load_table

SHIPPED = {
    name: load_table(find_table(name)) for name in packaged_tables()
}  # read here, so that rows are tests of their own
CELLS = [
    (name, row, dataset)
    for name, table in SHIPPED.items()
    for dataset in table.datasets
    for row in table.rows
    if table.trains(row, dataset)
]
BY_ID = pytest.mark.parametrize(
    ("name", "row", "dataset"), CELLS, ids=[f"{n}-{r.name}-{d.name}" for n, r, d in CELLS]
)


@BY_ID
def test_every_row_has_a_configuration(name: str, row: Row, dataset: Dataset) -> None:
    config = configure(name, SHIPPED[name], row, dataset)
    assert isinstance(config, RunConfig)
    assert not config.evaluation.all_tokens
    if dataset.source == "squad" and config.model.encoder.name == "biblosan":
        assert config.model.encoder.options["block_length"], (
            "nobody counts the lengths of sentences in passages"
        )
    if row.mode == "all":
        assert config.policy.name == "select-all"
        (phase,) = config.phases
        assert phase.patience is not None, "stops at its plateau"


@pytest.mark.parametrize("name", sorted(set(SHIPPED) - {"sampling"}))
def test_rows_with_all_tokens_get_as_many_updates(name: str) -> None:
    table = SHIPPED[name]
    for dataset in table.datasets:
        updates = {
            sum(phase.steps or 0 for phase in configure(name, table, row, dataset).phases)
            for row in table.rows
            if table.trains(row, dataset)
        }
        assert len(updates) == 1, dataset.name


def test_the_tables_of_the_papers_are_shipped() -> None:
    named = {"sick", "snli", "sentences", "squad", "trecqa", "lambada", "ablation", "sampling"}
    assert named <= set(SHIPPED)
    encoders = {"resan", "mean", "attention", "source2token", "disan", "bilstm", "bigru", "bisru"}
    encoders |= {"cnn", "hierarchical-cnn", "multi-head", "biblosan"}
    assert {row.name for row in SHIPPED["sick"].rows if row.runs} == encoders
    folds = {dataset.name: dataset.folds for dataset in SHIPPED["sentences"].datasets}
    assert folds == dict.fromkeys(("cr", "mpqa", "subj"), 10) | dict.fromkeys(
        ("trec", "sst-1", "sst-2")
    )


@pytest.mark.parametrize(
    ("name", "row", "dataset", "metric", "figure"),
    [
        ("sick", "resan", "sick-relatedness", "pearson", (0.8720, 0.0014)),
        ("sick", "bilstm", "sick-relatedness", "mse", (0.3276, 0.0087)),
        ("sick", "ecnu", "sick-relatedness", "pearson", (0.8414, None)),
        ("snli", "resan", "snli-25k", "epoch_s", (622, None)),
        ("sampling", "iterative-gru", "snli-25k", "inference_s", (17.1, None)),
        ("sentences", "biblosan", "mpqa", "accuracy", (90.4, 0.8)),
        ("sentences", "multi-head", "sst-1", "accuracy", (48.2, 0.6)),
        ("squad", "cnn", "squad", "accuracy", (63.58, None)),
        ("ablation", "no-unselected-heads", "snli-25k", "accuracy", (86.1, None)),
        ("ablation", "vanilla-attention", "snli-25k", "parameters", (450000, None)),
        ("ablation", "no-dependency-restricted", "snli-25k", "inference_s", (4.6, None)),
        ("ablation", "resan", "sick-relatedness", "pearson", None),
    ],
)
def test_published_figures(name: str, row: str, dataset: str, metric: str, figure: Any) -> None:
    found = next(item for item in SHIPPED[name].rows if item.name == row)
    assert found.figure(dataset, metric) == figure


def _changed(change: Callable[[dict[str, Any]], object]) -> Callable[[], Table]:
    tree = table_tree()
    change(tree)
    return lambda: make_table(**tree)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.update(titel=t.pop("title")), "did you mean 'title'"),
        (lambda t: t.update(titel="x"), r"own.yaml: unknown key 'titel'; did you mean 'title'\?"),
        (
            lambda t: t["rows"][0].update(labl="x"),
            "unknown key 'rows.0.labl'; did you mean 'label'",
        ),
        (lambda t: t["datasets"][0]["bases"]["selecting"].update(confg="x"), "'config'"),
        (lambda t: t["rows"][1].update(name="resan"), "rows has 'resan' twice"),
        (lambda t: t["rows"][1].update(name="../up"), "rows.1.name"),
        (lambda t: t["rows"][1].update(base="all-token"), "did you mean 'all-tokens'"),
        (lambda t: t["rows"][1].update(datasets=["plantd"]), "did you mean 'planted'"),
        (lambda t: t["rows"][1].update(published={"planted": {"acuracy": 1.5}}), "'accuracy'"),
        (lambda t: t["rows"][1].update(published={"planted": {"accuracy": 0.86}}), "in percent"),
        (lambda t: t["rows"][1].update(published={"planted": {"accuracy": 120}}), "cannot be 120"),
        (
            lambda t: t["rows"][1].update(published={"planted": {"accuracy": [80, 1, 2]}}),
            "accuracy",
        ),
        (lambda t: t["rows"][1].update(published={"planted": {"accuracy": "80 (1)"}}), "accuracy"),
        (lambda t: t["rows"][1].update(published={"planted": {"epoch_s": -1}}), "cannot be -1"),
        (
            lambda t: t["rows"][1].update(published={"planted": {"accuracy": [80, -0.2]}}),
            "the deviation of accuracy cannot be -0.2",
        ),
        (lambda t: t["rows"][1].update(mode="al"), "rows.1.mode"),
        (lambda t: t.update(metrics=["f2"]), "metrics.0"),
        (lambda t: t["datasets"][0].update(prepared="x"), "either source or prepared"),
        (lambda t: t["datasets"][0].update(folds=1), "datasets.0.folds"),
    ],
)
def test_mistakes_are_named(change: Callable[[dict[str, Any]], object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        _changed(change)()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"model.encodr": "mean"}, "did you mean 'encoder'"),
        ({"sampler.backend": "ray"}, "sampler.backend=local"),
        ({"phases": [{"name": "a", "policy": True, "steps": 1}]}, "mode: thresholded or sampled"),
    ],
)
def test_a_refused_run_names_table_and_row(settings: dict[str, Any], message: str) -> None:
    tree = table_tree()
    tree["rows"][1] |= {"base": "selecting", "settings": settings}
    table = make_table(**tree)
    with pytest.raises(ConfigError, match=message) as error:
        configure("own", table, table.rows[1], table.datasets[0])
    assert error.value.where == "table own, row mean on planted"


def test_later_settings_win() -> None:
    tree = table_tree()
    tree["settings"]["model.hidden"] = 9
    tree["datasets"][0]["bases"]["selecting"]["settings"]["model.hidden"] = 8
    table = make_table(**tree)
    (dataset,) = table.datasets
    row = table.rows[0]
    for more, hidden in (({}, 9), ({"model.hidden": 10}, 10)):
        own = row.model_copy(update={"settings": more})
        assert configure("own", table, own, dataset).model.hidden == hidden
    own = own.model_copy(update={"settings_on": {"planted": {"model.hidden": 11}}})
    assert configure("own", table, own, dataset).model.hidden == 11


def test_a_file_or_a_name(tmp_path: Path) -> None:
    file = write_table_file(tmp_path / "own.yaml")
    assert find_table(file) == file
    assert load_table(file) == make_table()
    with pytest.raises(ConfigError, match=r"sikc: no such table; did you mean 'sick'\?"):
        find_table("sikc")
    assert not [name for name in packaged_configs() if name.startswith("tables")]
    file.write_text(yaml.safe_dump({"rows": []}))
    with pytest.raises(ConfigError, match="own.yaml: title"):
        load_table(file)
