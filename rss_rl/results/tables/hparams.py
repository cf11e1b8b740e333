"""The runs of a table for TensorBoard's HPARAMS tab: differing settings and dev scores.

    FOLDER/tensorboard/FOLD_ROW_seed-N/events...    differing settings, dev scores

Event files are written without TensorFlow, and are deterministic.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from typing import Any

from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.plugins.hparams import summary_v2
from tensorboard.summary.writer.record_writer import RecordWriter

from rss_rl.config import flat_settings
from rss_rl.durable import disk_errors
from rss_rl.results import output
from rss_rl.results.summary import is_number
from rss_rl.results.tables.plan import Plan, PlannedRun
from rss_rl.results.tables.results import finished_runs
from rss_rl.runs.run_directory import REPORT_FILE

_EVENTS = "events.out.tfevents.0.rss-rl"
_ELSEWHERE = ("data", "seed")
"""Configuration keys left out, since the fold and seed of a run determine them."""
_Value = bool | float | str


def write_hparams(plan: Plan) -> None:
    """Write an event file for each finished run, and remove those of runs that are gone.

    Raises:
        CheckpointError: a report is damaged, or a write fails.
    """
    folder = plan.folder / "tensorboard"
    finished = [(run, report) for run, report, _ in finished_runs(plan.runs)]
    differing = _differing([run for run, _ in finished])
    written = set()
    for (run, report), settings in zip(finished, differing, strict=True):
        own = folder / f"{run.fold.name}_{run.row.name}_seed-{run.seed}"
        scores = report["splits"].get("dev", {}).get(run.row.mode, {})
        names = (*plan.table.metrics, "kept")
        shown = {f"dev/{name}": scores[name] for name in names if is_number(scores.get(name))}
        content = _events(run, settings, shown, report.get("best_step", 0))
        written.update(output.write_files(own, {_EVENTS: content}, "table"))
    with disk_errors(folder, "the table cannot be written", output.FREE_SPACE):
        for file in set(folder.glob(f"*/{_EVENTS}")) - written:
            file.unlink()
            file.parent.rmdir()


def _differing(runs: list[PlannedRun]) -> list[dict[str, _Value]]:
    """For each run: dataset, row, seed, and every key whose value differs between runs."""
    flat = [_flat(run.config.model_dump(mode="json")) for run in runs]
    keys = sorted({key for own in flat for key in own if key.split(".")[0] not in _ELSEWHERE})
    several = [key for key in keys if len({repr(own.get(key)) for own in flat}) > 1]
    found = []
    for run, own in zip(runs, flat, strict=True):
        common: dict[str, _Value] = {
            "dataset": run.fold.name,
            "row": run.row.name,
            "seed": run.seed,
        }
        found.append(common | {key: own[key] for key in several if key in own})
    return found


def _flat(tree: Mapping[str, Any]) -> dict[str, _Value]:
    """Values by dotted key; lists as JSON, empty values left out."""
    found = {key: value for key, value in flat_settings(tree) if value not in (None, {}, [])}
    return {key: json.dumps(v) if isinstance(v, list) else v for key, v in found.items()}


def _events(
    run: PlannedRun, settings: Mapping[str, _Value], scores: Mapping[str, float], step: int
) -> bytes:
    """The content of an event file, with the time of the report."""
    now = (run.path / REPORT_FILE).stat().st_mtime
    started = summary_v2.hparams_pb(settings, trial_id=run.label, start_time_secs=now)
    values = [Summary.Value(tag=tag, simple_value=value) for tag, value in scores.items()]
    stream = io.BytesIO()
    writer = RecordWriter(stream)
    for event in (
        Event(wall_time=now, file_version="brain.Event:2"),
        Event(wall_time=now, summary=started),
        Event(wall_time=now, step=step, summary=Summary(value=values)),
    ):
        writer.write(event.SerializeToString())
    return stream.getvalue()
