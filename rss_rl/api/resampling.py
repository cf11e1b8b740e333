"""`fit` on parts of a table: each fold is the test split once, or there are fewer rows."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from rss_rl.api.adapting import guess_task
from rss_rl.api.options import Rows, TableOptions
from rss_rl.api.rows import named_columns, split_files, split_shares
from rss_rl.api.run import Run
from rss_rl.config import RunConfig, settings
from rss_rl.data.column_files import draw_splits, read_rows, usable_row
from rss_rl.data.sources import BadRow, RawExample
from rss_rl.data.store import open_prepared
from rss_rl.data.tables import Record
from rss_rl.runs.run_directory import RunDirectory

Fit = Callable[..., Run]
"""Trains on rows, with settings; keywords `test`, `dev`, `out`, and `part`, of the time left."""
Deal = Callable[[Mapping[str, float]], dict[str, list[Any]]]
"""The rows of each part of a table, by shares."""
_PARTS = {"quarter": 0.25, "half": 0.25, "all": 0.5}
"""What each run has of the training rows more than the one before."""


def fit_folds(fit: Fit, deal: Deal, overrides: list[str], folds: int, out: Path) -> Run:
    """Train once for each fold, with seeds from 0 up, in OUT, OUT-fold2, ...

    Returns:
        The last run; `paths` has all of them.
    """
    names = [f"fold{number}" for number in range(1, folds + 1)]
    dealt, same = deal(dict.fromkeys(names, 1 / folds)), list[str]()
    paths = [out, *(out.with_name(f"{out.name}-{name}") for name in names[1:])]
    for number, (name, path) in enumerate(zip(names, paths, strict=True)):
        rows = [row for other in names if other != name for row in dealt[other]]
        part = 1 / (folds - number)
        chosen = [*overrides, *same, f"seed={number}"]
        run = fit(rows, chosen, test=dealt[name], out=path, part=part)
        run.paths = paths[: number + 1]
        if not run.finished:
            return run
        same = same or _updates(run.config)
        digest = RunDirectory.open(out).data_digest()
        RunDirectory.open(path).write_report({**run.report, "folds_of": digest})
    return run


def fit_parts(fit: Fit, deal: Deal, overrides: list[str], table: TableOptions, out: Path) -> Run:
    """Train on a quarter and on half of the training rows, in OUT-quarter and OUT-half, and then on
    all of them; the report of the last run has the scores of the three."""
    train, dev, test = split_shares(table)
    shares = {name: train * part for name, part in _PARTS.items()} | {"dev": dev, "test": test}
    dealt = deal({name: share for name, share in shares.items() if table.get(name) is None})
    splits = {name: dealt.get(name, table.get(name)) for name in ("dev", "test")}
    rows, curve = list[Any](), list[dict[str, Any]]()
    for name, part in zip(_PARTS, (1 / 7, 1 / 3, 1), strict=True):  # as there are rows
        rows, last = rows + dealt[name], name == "all"
        chosen = overrides if last else [*overrides, "evaluation.all_tokens=false"]
        path = out if last else out.with_name(f"{out.name}-{name}")
        run = fit(rows, chosen, **splits, out=path, part=part)
        if not run.finished:
            return run
        learnt = open_prepared(run.config.data).manifest.splits["train"].rows
        curve.append({"rows": learnt, "modes": run.report["splits"]["test"]})
    RunDirectory.open(run.path).write_report({**run.report, "learning_curve": curve})
    return run


def deal_rows(
    data: Rows, text: str, label: str, table: TableOptions, shares: Mapping[str, float]
) -> dict[str, list[Any]]:
    """The rows of each part of a table; of bad ones, those that `fit` leaves out, too, are gone.

    Raises:
        DataError: a file, column or row cannot be read.
    """
    columns = named_columns(text, label, table)
    with tempfile.TemporaryDirectory(prefix="rss-rl-rows-") as scratch:
        files = split_files({"rows": data}, Path(scratch), columns.all())["rows"]
        classes = (table.get("task") or guess_task(files, columns.label)) == "classes"
        places = draw_splits(files, columns, shares, table.get("split_seed", 0), classes)
        dealt: dict[str, list[Any]] = {name: [] for name in shares}
        names = [*shares]
        for place, record in zip(places, read_rows(files, columns.all()), strict=True):
            row = usable_row(record, columns)
            if isinstance(record, Record) and isinstance(row, RawExample):
                dealt[names[place]].append(record.values)
            elif isinstance(row, BadRow) and not table.get("skip_bad_rows"):
                raise row.error()  # which names the file; the run would name a copy of its rows
    return dealt


def _updates(config: RunConfig) -> list[str]:
    """Settings that follow from the number of rows and the time."""
    learner = config.learner
    return settings(
        {
            "batch_size": config.batch_size,
            "evaluation.every": config.evaluation.every,
            **{f"phases.{n}.steps": phase.steps for n, phase in enumerate(config.phases)},
            "learner.supervised.decay_updates": learner.supervised.decay_updates,
            "learner.policy.decay_updates": learner.policy.decay_updates,
        }
    )
