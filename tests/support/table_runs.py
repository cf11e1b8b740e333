"""A small table: two rows on made sentences, and reports written by hand."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from tiny_runs import TinySource
from typer.testing import CliRunner, Result

from rss_rl.cli.main import app
from rss_rl.components import Options
from rss_rl.config import parse_section
from rss_rl.data.sources import BadRow, RawExample, SourceComponent, SourceRequest
from rss_rl.results.tables.plan import PlannedRun
from rss_rl.results.tables.spec import Table
from rss_rl.runs.run_directory import RunDirectory

PHASES = [
    {"name": "warm-up", "supervised": True, "selection": "all", "steps": 4},
    {"name": "co-train", "supervised": True, "policy": True, "steps": 6},
]
PLAIN = {"name": "all", "supervised": True, "selection": "all", "steps": 10}
SETTINGS = {
    "evaluation.all_tokens": False,
    "evaluation.every": 5,
    "checkpoint.every": 2,
    "batch_size": 16,
    "model.hidden": 8,
    "sampler.actors": 1,
    "sampler.shards": 1,
    "sampler.backend": "local",
}


def table_tree(**changes: Any) -> dict[str, Any]:
    """As a YAML file has it: `resan` and `mean`, two seeds each, 10 updates a run."""
    tree: dict[str, Any] = {
        "title": "A trial",
        "metrics": ["accuracy"],
        "seeds": 2,
        "settings": dict(SETTINGS),
        "datasets": [
            {
                "name": "planted",
                "source": "planted",
                "options": {"train": "48", "dev": "16", "test": "16"},
                "dim": 6,
                "bases": {
                    "selecting": {
                        "config": "demo",
                        "settings": {"phases": PHASES, "policy.options.hidden": 8},
                    },
                    "all-tokens": {
                        "config": "demo",
                        "settings": {"policy.name": "select-all", "phases": [PLAIN]},
                    },
                },
            }
        ],
        "rows": [
            {
                "name": "resan",
                "label": "ReSAN",
                "mode": "thresholded",
                "published": {"planted": {"accuracy": [86.3, 0.2], "parameters": 3070000}},
            },
            {
                "name": "mean",
                "label": "Mean",
                "base": "all-tokens",
                "settings": {"model.encoder": "mean"},
            },
        ],
    }
    return tree | changes


def make_table(**changes: Any) -> Table:
    """The same, parsed."""
    return parse_section(Table, table_tree(**changes), where="own.yaml")


def write_table_file(path: Path, **changes: Any) -> Path:
    """The same as a file; JSON is YAML."""
    path.write_text(json.dumps(table_tree(**changes)))
    return path


def run_table(*arguments: object) -> Result:
    """`rss-rl table` in this process."""
    return CliRunner().invoke(app, ["table", *map(str, arguments)])


def report_by_hand(
    run: PlannedRun,
    parameters: int = 123456,
    dev: Mapping[str, float] = MappingProxyType({"accuracy": 0.0}),
    **scores: float,
) -> None:
    """Leave a finished run behind that scored so on test."""
    report = {
        "splits": {"test": {run.row.mode: scores}, "dev": {run.row.mode: dict(dev)}},
        "parameters": parameters,
        "seed": run.seed,
        "best_step": 7,
    }
    with RunDirectory.create(run.path, run.config.model_dump(mode="json")) as directory:
        directory.write_report(report)


def wait_for_checkpoint(run: Path, after: int, process: subprocess.Popen[str]) -> int:
    """Wait until the run has a checkpoint beyond an update; the update."""
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline and process.poll() is None:
        steps = [int(path.name[5:]) for path in (run / "checkpoints").glob("step-*")]
        if newer := [step for step in steps if step > after]:
            return min(newer)
        time.sleep(0.005)
    raise AssertionError(f"no checkpoint after {after}: {process.communicate()}")


class FoldedSource(TinySource):
    """Sentences whose test split is another for each fold."""

    name = "folded"

    def __init__(self, fold: int) -> None:
        super().__init__()
        self._fold = fold

    def read(self, split: str) -> Iterator[RawExample | BadRow]:
        for number, example in enumerate(super().read(split)):
            if split != "test" or number % 2 == self._fold:
                yield example


class FoldedOptions(Options):
    fold: int = 0
    folds: int = 2


def _folded(request: SourceRequest, options: FoldedOptions) -> FoldedSource:
    assert options.folds == 2
    return FoldedSource(options.fold)


FOLDED = SourceComponent(name="folded", help="Tiny folds.", build=_folded, options=FoldedOptions)
