"""Times that were measured for a table, and their file timing.json. Needs no torch."""

from __future__ import annotations

__all__ = ["Timing", "identity", "read_timings", "write_timings"]

import hashlib
import json
import statistics
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rss_rl.durable import replace_file
from rss_rl.errors import CheckpointError
from rss_rl.json_files import read_json
from rss_rl.results.tables.plan import PlannedRun

_VERSION = 1


@dataclass(frozen=True)
class Timing:
    """Of one row.

    update_s     of an update in each turn
    inference_s  of each pass over test
    updates_an_epoch   so an epoch takes median(update_s) times this
    run          what was measured, see `identity`
    """

    update_s: tuple[float, ...]
    inference_s: tuple[float, ...]
    updates_an_epoch: int
    run: str

    @property
    def epoch(self) -> float:
        """Seconds of training on every example once."""
        return statistics.median(self.update_s) * self.updates_an_epoch

    @property
    def inference(self) -> float:
        """Seconds of a pass over test."""
        return statistics.median(self.inference_s)


def identity(run: PlannedRun) -> str:
    """Tells the configuration that was measured from others, wherever its data lie."""
    tree = run.config.model_dump(mode="json", exclude={"data", "seed"})
    return hashlib.sha256(json.dumps(tree, sort_keys=True).encode()).hexdigest()[:16]


def read_timings(path: Path) -> tuple[dict[str, Any], dict[str, dict[str, Timing]]]:
    """The machine, and timings by dataset and row; both empty where there is no file.

    Raises:
        CheckpointError: the file is damaged.
    """
    if not path.is_file():
        return {}, {}
    remedy = "Remove it; the times are measured again"
    tree = read_json(path, remedy=remedy)
    try:
        if tree["schema_version"] != _VERSION:
            raise ValueError(f"schema version {tree['schema_version']!r}")
        timings = {
            dataset: {name: _timing(record) for name, record in rows.items()}
            for dataset, rows in tree["datasets"].items()
        }
        return dict(tree["machine"]), timings
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise CheckpointError(f"no timings: {error}", where=str(path), remedy=remedy) from error


def _timing(record: Mapping[str, Any]) -> Timing:
    updates, passes = (
        tuple(float(value) for value in record[name]) for name in ("update_s", "inference_s")
    )
    if not updates or not passes:
        raise ValueError("nothing was measured")
    return Timing(updates, passes, int(record["updates_an_epoch"]), str(record["run"]))


def write_timings(
    path: Path, described: Mapping[str, Any], timings: Mapping[str, Mapping[str, Timing]]
) -> None:
    """Write timings and the machine they were measured on."""
    datasets = {
        dataset: {name: asdict(timing) for name, timing in rows.items()}
        for dataset, rows in timings.items()
    }
    tree = {"schema_version": _VERSION, "machine": dict(described), "datasets": datasets}
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, json.dumps(tree, indent=2) + "\n")
