"""What a sweep shows: sweep.parquet, sweep.csv, sweep.md in its folder.

The frame has a line for each finished run and selection mode, with all settings in which runs
differ. The table has the mean over a point's runs, and their standard deviation: over seeds, or
with cross-validation over folds, each the mean of its seeds.
"""

from __future__ import annotations

import io
import json
import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import t as student

from rss_rl.components import Trust
from rss_rl.durable import disk_errors, replacing
from rss_rl.logs.tensorboard import write_hparams
from rss_rl.metrics.measures import find_measure, task_measures
from rss_rl.results.frame import is_setting, runs_frame
from rss_rl.results.sweeps.figures import Published, published, recorded
from rss_rl.results.sweeps.plan import PlannedRun, State
from rss_rl.results.sweeps.spec import Row, Spec
from rss_rl.results.tables import NONE, markdown_table, score_cell
from rss_rl.runs.run_directory import RunDirectory

_KEPT, _PARAMETERS = "kept", "parameters"
_KEY = ["dataset", "row", "point", "mode"]
_COSTS = ("update_s", "wall_seconds", _PARAMETERS)
_NOTE = (
    "Mean (sample standard deviation) over runs; with cross-validation over folds. Scores are of"
    " the checkpoint that was best on dev. Kept: words that are head or dependent. Parameters:"
    " without embeddings."
)
_RANKS = "Ranks are of rows that leave words out, with 95% intervals of their means by Student's t."


Point = dict[str, Any]
"""A row at a point of the axes on a dataset: names, and for each metric that all its finished runs
have NAME, the mean, and NAME_sd, the sample standard deviation (NaN of a single run)."""


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
    lines = pd.concat([recorded(spec), _shown(runs, frame)])
    columns = list(dict.fromkeys([*metrics, *spec.ranked, _KEPT, _PARAMETERS]))
    points = _points(spec, runs, lines, columns)
    ranks = [_ranks(spec, points, metric) for metric in spec.ranked]
    known = {(point["dataset"], point["row"]) for point in points}
    points += [
        {"dataset": dataset, "row": model, "label": f"*{model}*", "runs": NONE, "point": {}}
        for dataset, model in figures
        if (dataset, model) not in known and dataset in {name for name, _ in known}
    ]
    table = _table(spec, points, metrics, figures)
    note = f"{_NOTE} {_RANKS}" if spec.ranked else _NOTE
    parts = [f"# {spec.title}" if spec.title else "", spec.note, table, *ranks, note]
    markdown = "\n\n".join(part for part in parts if part) + "\n"
    parquet = io.BytesIO()
    frame.to_parquet(parquet, index=False)
    kept = [name for name in (*_KEY, "fold", "seed", *columns) if name in lines]
    csv = lines[kept].to_csv(index=False, float_format="%.5g")
    contents: dict[str, str | bytes] = {"sweep.parquet": parquet.getvalue()}
    contents |= {"sweep.md": markdown, "sweep.csv": csv}
    _show_settings(folder / "hparams", finished, frame, columns)
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
    of_line = [by_path[path] for path in frame["run"]]
    frame.insert(0, "dataset", [run.fold.dataset for run in of_line])
    frame.insert(1, "row", [run.row for run in of_line])
    frame.insert(2, "fold", pd.Series([run.fold.number for run in of_line], dtype="Int64"))
    sizes = frame.get("batch_size", pd.Series(dtype=float)).astype(float)  # none without runs
    frame["update_s"] = sizes / frame["examples_per_second"]
    judged = {path: _judged(Path(path), split) for path in frame["run"].unique()}
    for name in ("reader", "leak"):
        values = [
            judged[p].get((m, name)) for p, m in zip(frame["run"], frame["mode"], strict=True)
        ]
        frame[name] = pd.Series(values, dtype=float)
    same = [name for name in frame if is_setting(name) and frame[name].nunique(dropna=False) < 2]
    return frame.drop(columns=[name for name in same if name != "seed"])


def _show_settings(
    folder: Path, runs: Sequence[PlannedRun], frame: pd.DataFrame, metrics: Sequence[str]
) -> None:
    """For TensorBoard's tab HPARAMS: settings in which runs differ, and their scores."""
    shutil.rmtree(folder, ignore_errors=True)
    modes = {str(run.path): run.modes[0] for run in runs}
    shown = {}
    for line in frame.to_dict("records"):
        if line["mode"] == modes[line["run"]]:
            known = {key: value for key, value in line.items() if not pd.isna(value)}
            # In capitals, so that the tab, which sorts by name, has them first.
            settings = {"DATASET": line["dataset"], "ROW": line["row"]}
            settings |= {key: value for key, value in known.items() if is_setting(key)}
            scores = {name: float(known[name]) for name in metrics if name in known}
            name = Path(line["run"]).relative_to(folder.parent).as_posix()
            shown[name] = settings, scores
    with written_to(folder):
        write_hparams(folder, shown)


def _judged(run: Path, split: str) -> dict[tuple[str, str], float]:
    """What is known of a run's kept words, see `rss_rl.results.trojan`, by mode and measure."""
    trojan = RunDirectory.open(run).read_report().get("trojan", {}).get(split)
    if not trojan:
        return {}
    modes = {"kept": "thresholded", "random": "random"}
    scores = {(modes[n], "reader"): v for n, v in trojan["reader"].items() if n in modes}
    if kinds := trojan["told"]:
        scores["thresholded", "leak"] = kinds["kept"] - kinds["there"]
    return scores


def _shown(runs: Sequence[PlannedRun], frame: pd.DataFrame) -> pd.DataFrame:
    """The lines of modes that are shown, with their point of the axes as JSON; what training cost
    stands with a run's own mode."""
    by_path = {str(run.path): run for run in runs}
    of_line = [by_path[path] for path in frame["run"]]
    frame = frame.assign(point=[json.dumps(run.point) for run in of_line])
    modes = list(zip(frame["mode"], of_line, strict=True))
    for name in _COSTS:
        frame[name] = frame[name].where([mode == run.modes[0] for mode, run in modes])
    return frame[np.array([mode in run.modes for mode, run in modes], bool)]


def _points(
    spec: Spec, runs: Sequence[PlannedRun], lines: pd.DataFrame, metrics: Sequence[str]
) -> list[Point]:
    planned = Counter(
        (run.fold.dataset, run.row, json.dumps(run.point), mode)
        for run in runs
        for mode in run.modes
    )
    done = {key: part for key, part in lines.groupby(_KEY, sort=False) if len(part)}
    keys = [*planned, *(key for key in done if key not in planned)]
    datasets, rows = (
        list(dict.fromkeys([*names, *(key[part] for key in keys)]))
        for part, names in enumerate((spec.datasets, spec.rows))
    )
    points = []
    for key in sorted(keys, key=lambda key: (datasets.index(key[0]), rows.index(key[1]))):
        dataset, name, at, mode = key
        row, part = spec.rows.get(name, Row()), done.get(key, lines[:0])
        runs_done = f"{len(part)}, recorded" if key not in planned else str(len(part))
        if key in planned and planned[key] != len(part):
            runs_done = f"{len(part)} of {planned[key]}"
        point: Point = {"dataset": dataset, "row": name, "point": json.loads(at), "runs": runs_done}
        point["label"] = row.also.get(mode, row.label or name)
        for metric in metrics:
            if metric in part and len(part) and not part[metric].isna().any():
                folds = part.groupby("fold", dropna=False)[metric].mean()
                values = folds if len(folds) > 1 else part[metric]
                point |= {metric: values.mean(), f"{metric}_sd": values.std()}
        points.append(point)
    return points


def _ranks(spec: Spec, points: Sequence[Point], metric: str) -> str:
    """A line for each row that leaves words out: its score on each dataset, and its mean rank."""
    less = [point for point in points if metric in point and point[_KEPT] < 1]
    if not less:
        return ""
    measure = find_measure(metric)
    scores = pd.DataFrame(less).pivot(index="label", columns="dataset", values=metric)
    ranks = scores.rank(ascending=measure.lower_is_better)
    count, mean = ranks.count(axis=1), ranks.mean(axis=1)
    half = student.ppf(0.975, count - 1) * ranks.std(axis=1) / np.sqrt(count)
    cells = {(point["label"], point["dataset"]): score_cell(point, metric) for point in less}
    datasets = {name: each.label or name for name, each in spec.datasets.items() if name in scores}
    body = []
    for label in mean.sort_values(kind="stable").index:
        low, high = max(1.0, mean[label] - half[label]), min(len(mean), mean[label] + half[label])
        rank = f"{mean[label]:.1f}" + (f" ({low:.1f} to {high:.1f})" if count[label] > 1 else "")
        body.append([label, *(cells.get((label, name), NONE) for name in datasets), rank])
    table = markdown_table(["model", *datasets.values(), "mean rank"], body)
    return f"## Ranks by {measure.label}\n\n{table}"


def _table(spec: Spec, points: Sequence[Point], metrics: Sequence[str], figures: Published) -> str:
    """A line for each point; columns without any value are left out."""
    keys = dict.fromkeys(key for point in points for key in point["point"])
    labels = {name: each.label or name for name, each in spec.datasets.items()}
    columns = [("dataset", [labels.get(p["dataset"], p["dataset"]) for p in points])]
    columns = columns if len(spec.datasets) > 1 else []
    columns.append(("model", [point["label"] for point in points]))
    columns += [(f"`{k}`", [_value(p["point"].get(k, NONE)) for p in points]) for k in keys]
    columns.append(("runs", [point["runs"] for point in points]))
    theirs = [figures.get((point["dataset"], point["row"]), {}) for point in points]
    for metric in dict.fromkeys([*metrics, _KEPT, _PARAMETERS]):
        columns.append((find_measure(metric).label, [_figure(point, metric) for point in points]))
        columns.append(("*published*", [_figure(each, metric) for each in theirs]))
    filled = [c for c in columns if c[0] == "model" or any(cell != NONE for cell in c[1])]
    header, cells = zip(*filled, strict=True)
    return markdown_table(header, list(zip(*cells, strict=True)))


def _value(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _figure(scores: Mapping[str, Any], metric: str) -> str:
    if metric == _PARAMETERS and metric in scores:
        count = scores[metric]
        return f"{count / 1e6:.2f} M" if count >= 1e5 else f"{count:,.0f}"
    return score_cell(scores, metric)


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
