"""Runs as a table: one line per run, split and selection mode; and its means over seeds or folds.

Columns of `runs_frame`:

run, finished, data_sha256          the run's directory; whether it has a report; the data's digest
split, mode                         missing for an unfinished run, which has a single line
accuracy, kept, ...                 scores of that split and mode, by name of the measure
steps, best_step, parameters, wall_seconds, examples_per_second   of the run
data, seed, policy.name, ...        every setting, by its dotted key; lists as JSON text
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from rss_rl.components import NOTHING, Trust
from rss_rl.config import RunConfig, flat_settings
from rss_rl.errors import CheckpointError
from rss_rl.metrics.measures import in_order
from rss_rl.runs.run_directory import REPORT_FILE, RunDirectory

_ABOUT = ("run", "finished", "data_sha256", "split", "mode")
_COSTS = ("steps", "best_step", "parameters", "wall_seconds", "examples_per_second")
_TOP_SETTINGS = set(RunConfig.model_fields) - {"reward"}
"""Settings without a dot; `reward` is a section, so that column is the score."""


def runs_frame(paths: Sequence[Path], trust: Trust = NOTHING) -> pd.DataFrame:
    """Read the runs in these directories.

    Args:
        trust: see `rss_rl.training.trained_models.open_models`.

    Raises:
        CheckpointError: there is no run, or its report is damaged.
        ConfigError: its configuration is not valid in this version.
    """
    lines = [line for path in paths for line in _lines(path, trust)]
    names = list(dict.fromkeys(name for line in lines for name in line))
    settings = [name for name in names if is_setting(name)]
    scores = in_order({*names} - {*settings, *_ABOUT, *_COSTS})
    types = dict.fromkeys([*_ABOUT, *scores, *_COSTS, *settings], object)
    types |= {"finished": bool, **dict.fromkeys([*scores, *_COSTS], float)}
    return pd.DataFrame(
        {
            name: pd.Series([line.get(name) for line in lines], dtype=dtype)
            for name, dtype in types.items()
        }
    )


def _lines(path: Path, trust: Trust) -> Iterator[dict[str, Any]]:
    directory = RunDirectory.open(path)
    config = directory.parsed_config(trust).model_dump(mode="json")
    settings = {
        key: json.dumps(value) if isinstance(value, list | dict) else value
        for key, value in flat_settings(config)
    }
    about = {"run": str(path), "finished": False, "data_sha256": _data_digest(directory)}
    if not (path / REPORT_FILE).is_file():
        yield {**about, **settings}
        return
    report = directory.read_report()
    try:
        costs = {name: float(report[name]) for name in _COSTS}
        for split, modes in report["splits"].items():
            for mode, scores in modes.items():
                line = {"finished": True, "split": split, "mode": mode}
                yield {**about, **line, **_numbers(scores), **costs, **settings}
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise CheckpointError(
            f"damaged: {error!r}",
            where=str(path / REPORT_FILE),
            remedy="Delete it and resume the run, which writes it again",
        ) from error


def _numbers(scores: Mapping[str, Any]) -> dict[str, float | None]:
    """Scores as floats; None for those that were not finite."""
    return {name: None if value is None else float(value) for name, value in scores.items()}


def _data_digest(directory: RunDirectory) -> str:
    """The digest of the data as they were when the run began; their path if it is not known."""
    try:
        return str(directory.read_provenance()["data"]["manifest_sha256"])
    except (CheckpointError, KeyError, TypeError):
        return str(directory.config.get("data"))


def is_setting(name: str) -> bool:
    """Whether a column holds a setting."""
    return "." in name or name in _TOP_SETTINGS


def score_names(frame: pd.DataFrame) -> list[str]:
    """The columns that hold scores."""
    others = {"group", "runs", *_ABOUT, *_COSTS}
    return [
        name
        for name in frame.columns
        if name not in others and not is_setting(name) and not name.endswith("_sd")
    ]


def with_groups(frame: pd.DataFrame, over: Sequence[str] = ("seed",)) -> pd.DataFrame:
    """The frame with a column `group`: 1 and up, in the order in which groups occur.

    Runs of a group have the same data and settings, except for those named in `over`. Data are
    compared by their digest, not their path.
    """
    keys = [name for name in frame.columns if is_setting(name) and name not in {*over, "data"}]
    keys += [] if "data" in over else ["data_sha256"]
    numbers = frame.groupby(keys, sort=False, dropna=False).ngroup() + 1
    return frame.assign(group=numbers)


def grouped(frame: pd.DataFrame, over: Sequence[str] = ("seed",)) -> pd.DataFrame:
    """Means over the finished runs that differ only in `over`, by split and mode.

    Each score and cost NAME is the mean, and NAME_sd the sample standard deviation (NaN for a
    single value); both are NaN unless all runs of the group have the score. `runs` counts them.
    Settings are those of the first run.

    Args:
        over: setting to average over. With several, the spread is over the last: ("seed", "data")
            takes each fold's mean over its seeds, then mean and deviation over folds, as in papers.

    Raises:
        CheckpointError: a group has two runs with the same values of `over`.
    """
    frame = with_groups(frame, over)
    frame = frame[frame["finished"]]
    _check_no_run_twice(frame, over)
    where, measured = ["group", "split", "mode"], [*score_names(frame), *_COSTS]
    first = frame.groupby(where, sort=False).head(1).set_index(where)
    first = first[[name for name in frame.columns if is_setting(name) and name not in over]]
    counts = frame.groupby(where, sort=False).size().rename("runs")
    for name in over[1:]:
        by = [*where, *over[over.index(name) :]]
        frame = frame.groupby(by, sort=False, dropna=False)[measured].mean(skipna=False)
        frame = frame.reset_index()
    spread = frame.groupby(where, sort=False)[measured]
    means, deviations = spread.mean(skipna=False), spread.std(skipna=False).add_suffix("_sd")
    return pd.concat([counts, means, deviations, first], axis=1).reset_index()


def _check_no_run_twice(frame: pd.DataFrame, over: Sequence[str]) -> None:
    twice = frame[frame.duplicated(["group", "split", "mode", *over])]
    if len(twice):
        values = ", ".join(f"{name}={twice.iloc[0][name]}" for name in over)
        raise CheckpointError(
            f"two runs of one configuration have {values}",
            where=str(twice.iloc[0]["run"]),
            remedy="Name each seed's run once: a repeated one makes the spread too small",
        )
