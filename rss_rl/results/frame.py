"""Runs as a table: one line per run, split and selection mode; and its means over seeds.

Columns of `runs_frame`:

run, finished, data_sha256          the run's directory; whether it has a report; the data's digest
split, mode                         of a run that still trains, those of its best scores of dev so
                                    far; missing, in a single line, if it has none
accuracy, kept, ...                 scores of that split and mode, by name of the measure
steps, best_step, parameters, wall_seconds, examples_per_second   of the run
data, seed, policy.name, ...        every setting, by its dotted key; lists as JSON text
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from rss_rl.components import NOTHING, Trust
from rss_rl.config import RunConfig, flat_settings
from rss_rl.errors import CheckpointError
from rss_rl.metrics.measures import in_order
from rss_rl.runs.run_directory import REPORT_FILE, RunDirectory
from rss_rl.training.status import read_status

_ABOUT = ("run", "finished", "data_sha256", "split", "mode")
_COSTS = ("steps", "best_step", "parameters", "wall_seconds", "examples_per_second")
_TOP_SETTINGS = set(RunConfig.model_fields) - {"reward"}
"""Settings without a dot; `reward` is a section, so that column is the score."""


def runs_frame(paths: Sequence[Path], trust: Trust = NOTHING) -> pd.DataFrame:
    """Read the runs in these directories.

    Args:
        trust: see `rss_rl.reading.trained_runs.open_models`.

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
    about = {"run": str(path), "finished": False, "data_sha256": directory.data_digest()}
    if not (path / REPORT_FILE).is_file():
        best = read_status(str(path)).record.best
        for mode, scores in ({} if best is None else best.scores).items():
            yield {**about, "split": "dev", "mode": mode, **scores, **settings}
        if best is None:
            yield {**about, **settings}
        return
    report = directory.read_report()
    # Folds of a table count as the same data.
    about["data_sha256"] = report.get("folds_of", about["data_sha256"])
    try:
        costs = {name: float(report[name]) for name in _COSTS}
        for split, modes in report["splits"].items():
            for mode, scores in modes.items():
                line = {"finished": True, "split": split, "mode": mode}
                # None where a score was not finite.
                numbers = {k: None if v is None else float(v) for k, v in scores.items()}
                yield {**about, **line, **numbers, **costs, **settings}
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise CheckpointError(
            f"damaged: {error!r}",
            where=str(path / REPORT_FILE),
            remedy="Delete it and resume the run, which writes it again",
        ) from error


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


def with_groups(frame: pd.DataFrame) -> pd.DataFrame:
    """The frame with a column `group`: 1 and up, in the order in which groups occur.

    Runs of a group have the same data and settings, except for the seed. Data are compared by their
    digest, not their path.
    """
    keys = [name for name in frame if is_setting(name) and name not in ("seed", "data")]
    groups = frame.groupby([*keys, "data_sha256"], sort=False, dropna=False)
    return frame.assign(group=groups.ngroup() + 1)


def grouped(frame: pd.DataFrame) -> pd.DataFrame:
    """Means over the finished runs that differ only in the seed, by split and mode; of a group of
    which none is finished, over what there is.

    Each score and cost NAME is the mean, and NAME_sd the sample standard deviation (NaN for a
    single value); both are NaN unless all runs of the group have the score. `runs` counts them.
    Settings are those of the first run.

    Raises:
        CheckpointError: a group has two runs with the same seed.
    """
    frame = with_groups(frame)
    ended = frame.groupby("group")["finished"].transform("any")
    frame = frame[(frame["finished"] | ~ended) & frame["mode"].notna()]
    where = ["group", "split", "mode"]
    twice = frame[frame.duplicated([*where, "seed"])]
    if len(twice):
        raise CheckpointError(
            f"two runs of one configuration have seed={twice.iloc[0]['seed']}",
            where=str(twice.iloc[0]["run"]),
            remedy="Name each seed's run once: a repeated one makes the spread too small",
        )
    lines, measured = frame.groupby(where, sort=False), [*score_names(frame), *_COSTS]
    settings = [name for name in frame if is_setting(name) and name != "seed"]
    means = lines[measured].mean(skipna=False)
    deviations = lines[measured].std(skipna=False).add_suffix("_sd")
    parts = [
        lines.size().rename("runs"),
        means,
        deviations,
        lines.head(1).set_index(where)[settings],
    ]
    return pd.concat(parts, axis=1).reset_index()
