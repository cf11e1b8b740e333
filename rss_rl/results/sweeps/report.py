"""What a sweep shows: sweep.parquet, sweep.md in its folder.

The frame has a line for each finished run and selection mode, with all settings in which runs
differ. The table has the mean over a point's runs, and their standard deviation: over seeds, or
with cross-validation over folds, each the mean of its seeds.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pandas as pd

from rss_rl.components import Trust
from rss_rl.durable import disk_errors, replacing
from rss_rl.errors import ConfigError, nearest
from rss_rl.metrics.measures import find_measure, task_measures
from rss_rl.results.frame import is_setting, runs_frame
from rss_rl.results.sweeps.plan import PlannedRun, State
from rss_rl.results.sweeps.spec import Spec
from rss_rl.results.tables import NONE, markdown_table, score_cell

_KEPT, _PARAMETERS = "kept", "parameters"
_NOTE = (
    "Mean (sample standard deviation) over runs; with cross-validation over folds. Scores are of"
    " the checkpoint that was best on dev. Kept: words that are head or dependent. Parameters:"
    " without embeddings."
)


Point = dict[str, Any]
"""A row at a point of the axes on a dataset: names, and for each metric that all its finished runs
have NAME, the mean, and NAME_sd, the sample standard deviation (NaN of a single run)."""
Published = Mapping[tuple[str, str], Mapping[str, float]]
"""Figures by dataset and model, named as those of a point."""


def write_sweep(
    spec: Spec,
    runs: Sequence[PlannedRun],
    states: Sequence[State],
    folder: Path,
) -> tuple[pd.DataFrame, str, list[Path]]:
    """Write the files of a sweep; returns the frame, the Markdown and the files.

    Raises:
        ConfigError: there is no paper that the specification names.
        CheckpointError: a report is damaged, or a write fails.
    """
    finished = [run for run, state in zip(runs, states, strict=True) if state == "finished"]
    frame = sweep_frame(finished, spec.split)
    metrics = list(spec.metrics) or [name for name in task_measures() if name in frame]
    figures = published(spec)
    points = _points(runs, frame, [*metrics, _KEPT, _PARAMETERS])
    known = {(point["dataset"], point["row"]) for point in points}
    points += [
        {"dataset": dataset, "row": model, "label": f"*{model}*", "runs": NONE, "point": {}}
        for dataset, model in figures
        if (dataset, model) not in known and dataset in {name for name, _ in known}
    ]
    table = _table(spec, points, metrics, figures)
    parts = [f"# {spec.title}" if spec.title else "", spec.note, table, _NOTE]
    markdown = "\n\n".join(part for part in parts if part) + "\n"
    parquet = io.BytesIO()
    frame.to_parquet(parquet, index=False)
    contents: dict[str, str | bytes] = {"sweep.parquet": parquet.getvalue(), "sweep.md": markdown}
    return frame, markdown, _write_files(folder, contents)


def sweep_frame(runs: Sequence[PlannedRun], split: str) -> pd.DataFrame:
    """A line for each of these finished runs and selection mode.

    Raises:
        CheckpointError: a report is damaged.
    """
    trust = Trust.of([run.config.model_dump(mode="json") for run in runs])
    frame = runs_frame([run.path for run in runs], trust)
    frame = frame[frame["split"] == split].reset_index(drop=True)
    by_path = {str(run.path): run for run in runs}
    own = [by_path[path] for path in frame["run"]]
    frame.insert(0, "dataset", [run.fold.dataset for run in own])
    frame.insert(1, "row", [run.row for run in own])
    frame.insert(2, "fold", pd.Series([run.fold.number for run in own], dtype="Int64"))
    same = [name for name in frame if is_setting(name) and frame[name].nunique(dropna=False) < 2]
    return frame.drop(columns=[name for name in same if name != "seed"])


def published(spec: Spec) -> Published:
    """The figures of the papers that a specification names.

    Raises:
        ConfigError: there is no such paper.
    """
    lines = pd.read_csv(Path(__file__).with_name("published.csv"))
    lines["paper"] += ", " + lines["page"]
    papers = list(lines["paper"].unique())
    for paper in spec.published:
        if paper not in papers:
            known = f"There are those of {'; '.join(papers)}"
            raise ConfigError(
                f"no '{paper}'{nearest(paper, papers)}", where="published", remedy=known
            )
    figures: dict[tuple[str, str], dict[str, float]] = {}
    for line in lines[lines["paper"].isin(spec.published)].itertuples():
        scale = 100 if find_measure(line.metric).percent else 1
        own = {line.metric: line.value / scale, f"{line.metric}_sd": line.sd / scale}
        figures.setdefault((line.dataset, line.model), {}).update(own)
    return figures


def _points(runs: Sequence[PlannedRun], frame: pd.DataFrame, metrics: Sequence[str]) -> list[Point]:
    planned: dict[tuple[str, str, str], list[PlannedRun]] = {}
    order = list(dict.fromkeys(run.fold.dataset for run in runs))
    for run in sorted(runs, key=lambda run: order.index(run.fold.dataset)):
        key = run.fold.dataset, run.row, json.dumps(run.point)
        planned.setdefault(key, []).append(run)
    points = []
    for own in planned.values():
        first, paths = own[0], [str(run.path) for run in own]
        lines = frame[frame["run"].isin(paths) & (frame["mode"] == first.mode)]
        done = str(len(lines)) if len(lines) == len(own) else f"{len(lines)} of {len(own)}"
        point: Point = {"dataset": first.fold.dataset, "row": first.row, "label": first.label}
        point |= {"point": first.point, "runs": done}
        for metric in metrics:
            if metric in lines and len(lines) and not lines[metric].isna().any():
                folds = lines.groupby("fold", dropna=False)[metric].mean()
                values = folds if len(folds) > 1 else lines[metric]
                point |= {metric: values.mean(), f"{metric}_sd": values.std()}
        points.append(point)
    return points


def _table(spec: Spec, points: Sequence[Point], metrics: Sequence[str], figures: Published) -> str:
    """A line for each point; columns without any value are left out."""
    keys = dict.fromkeys(key for point in points for key in point["point"])
    labels = {name: own.label or name for name, own in spec.datasets.items()}
    columns = [("dataset", [labels.get(p["dataset"], p["dataset"]) for p in points])]
    columns = columns if len(spec.datasets) > 1 else []
    columns.append(("model", [point["label"] for point in points]))
    columns += [(f"`{k}`", [_value(p["point"].get(k, NONE)) for p in points]) for k in keys]
    columns.append(("runs", [point["runs"] for point in points]))
    theirs = [figures.get((point["dataset"], point["row"]), {}) for point in points]
    for metric in dict.fromkeys([*metrics, _KEPT, _PARAMETERS]):
        columns.append((find_measure(metric).label, [_figure(own, metric) for own in points]))
        columns.append(("*published*", [_figure(own, metric) for own in theirs]))
    filled = [c for c in columns if c[0] == "model" or any(cell != NONE for cell in c[1])]
    header, cells = zip(*filled, strict=True)
    return markdown_table(header, list(zip(*cells, strict=True)))


def _value(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _figure(found: Mapping[str, Any], metric: str) -> str:
    if metric == _PARAMETERS and metric in found:
        count = found[metric]
        return f"{count / 1e6:.2f} M" if count >= 1e5 else f"{count:,.0f}"
    return score_cell(found, metric)


def written_to(folder: Path) -> AbstractContextManager[None]:
    """Where files of a sweep are written: a failure is a CheckpointError."""
    remedy = "Give --out on a disk that can be written and has free space"
    return disk_errors(folder, "the sweep cannot be written", remedy)


def _write_files(folder: Path, contents: Mapping[str, str | bytes]) -> list[Path]:
    """Write files by name, each atomically.

    Raises:
        CheckpointError: a write fails.
    """
    with written_to(folder):
        for name, content in contents.items():
            with replacing(folder / name) as temporary:
                temporary.write_bytes(content.encode() if isinstance(content, str) else content)
    return [folder / name for name in contents]
