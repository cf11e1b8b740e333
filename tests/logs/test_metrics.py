"""Metrics: none twice after a resume, and the same in both files."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from tensorboard.backend.event_processing.plugin_event_accumulator import EventAccumulator
from tensorboard.util import tensor_util

from rss_rl.components import NoOptions
from rss_rl.errors import CheckpointError
from rss_rl.logs.logger import LoggedRun
from rss_rl.logs.metrics import MetricsWriter, read_metrics
from rss_rl.logs.tensorboard import TensorBoardLogger


def rows(run: Path) -> list[tuple[int, str, float]]:
    table = read_metrics(run)
    return [(row["step"], row["tag"], row["value"]) for row in table.to_pylist()]


def events(run: Path) -> EventAccumulator:
    """What TensorBoard would show."""
    return EventAccumulator(str(run / "tensorboard"), {"tensors": 0}).Reload()


def shown(run: Path, tag: str) -> list[tuple[int, float]]:
    found = events(run).Tensors(tag)
    return [(event.step, tensor_util.make_ndarray(event.tensor_proto).item()) for event in found]


def written(run: Path, resume: int | None = None, name: str = "") -> MetricsWriter:
    """A writer that logs to TensorBoard."""
    tensorboard = TensorBoardLogger(LoggedRun(name, run, {}, resume), NoOptions())
    return MetricsWriter(run, resume, loggers=[tensorboard])


def test_scalars_are_in_both_files(tmp_path: Path) -> None:
    with written(tmp_path) as writer:
        writer.scalars(1, {"train/loss": 0.5, "selection/kept": np.float32(0.25)})
        writer.flush()
        writer.scalars(2, {"train/loss": 0.25})
    assert rows(tmp_path) == [
        (1, "train/loss", 0.5),
        (1, "selection/kept", 0.25),
        (2, "train/loss", 0.25),
    ]
    assert shown(tmp_path, "train/loss") == [(1, 0.5), (2, 0.25)]
    assert sorted(os.listdir(tmp_path / "metrics")) == [
        "part-000000.parquet",
        "part-000001.parquet",
    ]
    assert read_metrics(tmp_path)["wall_time"][0].as_py() > 1.6e9


def test_what_is_not_finite_is_left_out_and_counted(tmp_path: Path) -> None:
    with written(tmp_path) as writer:
        writer.scalars(
            1, {"train/loss": float("nan"), "policy/loss": -np.inf, "policy/entropy": 0.5}
        )
        writer.scalars(2, {"train/loss": 0.5})
    assert rows(tmp_path) == [
        (1, "policy/entropy", 0.5),
        (1, "metrics/non_finite", 2.0),
        (2, "train/loss", 0.5),
    ]
    assert shown(tmp_path, "metrics/non_finite") == [(1, 2.0)]


def write_steps(run: Path, first: int, last: int, value: float, resume: int | None = None) -> None:
    with written(run, resume) as writer:
        for step in range(first, last + 1):
            writer.scalars(step, {"train/loss": value})
            writer.text(step, "selection/examples", f"{value}")
            if step % 4 == 0:
                writer.flush()


@pytest.mark.parametrize("resume", [8, 6, 3, 10])
def test_no_point_is_there_twice_after_a_resume(tmp_path: Path, resume: int) -> None:
    write_steps(tmp_path, 1, 10, 1.0)
    write_steps(tmp_path, resume + 1, 12, 2.0, resume)
    expected = [(step, 1.0 if step <= resume else 2.0) for step in range(1, 13)]
    assert [(step, value) for step, _, value in rows(tmp_path)] == expected
    assert shown(tmp_path, "train/loss") == expected
    texts = events(tmp_path).Tensors("selection/examples/text_summary")
    assert [event.step for event in texts] == list(range(1, 13))


@pytest.mark.parametrize("before", ["", "older_seed-0"])
def test_a_run_keeps_the_folder_of_its_events(tmp_path: Path, before: str) -> None:
    with written(tmp_path, name=before) as writer:
        for step in (1, 2, 3):
            writer.scalars(step, {"train/loss": 1.0})
    with written(tmp_path, 2, "newer_seed-0") as writer:
        writer.scalars(3, {"train/loss": 2.0})
    folder = tmp_path / "tensorboard" / before
    assert {path.parent for path in tmp_path.rglob("events.out.*")} == {folder}
    found = EventAccumulator(str(folder), {"tensors": 0}).Reload().Tensors("train/loss")
    values = [tensor_util.make_ndarray(event.tensor_proto).item() for event in found]
    assert [(event.step, value) for event, value in zip(found, values, strict=True)] == [
        (1, 1.0),
        (2, 1.0),
        (3, 2.0),
    ]


KILLED = """
    import os, signal, sys
    from pathlib import Path
    from rss_rl.components import NoOptions
    from rss_rl.logs.logger import LoggedRun
    from rss_rl.logs.metrics import MetricsWriter
    from rss_rl.logs.tensorboard import TensorBoardLogger
    run = LoggedRun("", Path(sys.argv[1]), {}, None)
    writer = MetricsWriter(run.folder, loggers=[TensorBoardLogger(run, NoOptions())])
    for step in range(1, 8):
        writer.scalars(step, {"train/loss": step})
        if step == 5:
            writer.flush()
    (Path(sys.argv[1]) / "metrics" / ".tmp-part-000001.parquet-1").write_bytes(b"half")
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_was_flushed_outlives_a_kill(tmp_path: Path) -> None:
    command = [sys.executable, "-c", textwrap.dedent(KILLED), str(tmp_path)]
    assert subprocess.run(command, check=False).returncode == -signal.SIGKILL
    assert [step for step, *_ in rows(tmp_path)] == [1, 2, 3, 4, 5]
    write_steps(tmp_path, 6, 7, 0.0, resume=5)
    assert [step for step, *_ in rows(tmp_path)] == [1, 2, 3, 4, 5, 6, 7]
    assert [step for step, _ in shown(tmp_path, "train/loss")] == [1, 2, 3, 4, 5, 6, 7]
    assert not list((tmp_path / "metrics").glob(".tmp*"))


def test_damaged_parts_are_errors(tmp_path: Path) -> None:
    write_steps(tmp_path, 1, 3, 1.0)
    part = tmp_path / "metrics" / "part-000000.parquet"
    sound = part.read_bytes()
    part.write_bytes(sound[:-20])
    for call in (lambda: read_metrics(tmp_path), lambda: MetricsWriter(tmp_path, 2)):
        with pytest.raises(CheckpointError, match="part-000000.*Move the file away"):
            call()
    part.write_bytes(sound)
    pq.write_table(pq.read_table(part).drop_columns(["value"]), part)
    with pytest.raises(CheckpointError, match="columns"):
        read_metrics(tmp_path)
    part.unlink()
    os.mkfifo(part)  # opening it would wait for ever
    with pytest.raises(CheckpointError, match="a pipe or a device"):
        read_metrics(tmp_path)


def test_a_refusing_disk_is_a_clear_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(CheckpointError, match="could not be written.*Free disk space"):
        MetricsWriter(tmp_path / "file")
    with MetricsWriter(tmp_path) as writer:
        writer.scalars(1, {"train/loss": 1.0})

        def refuse(*_: object) -> None:
            raise OSError(28, "No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr(os, "replace", refuse)
            with pytest.raises(CheckpointError, match="No space left on device"):
                writer.flush()
    assert rows(tmp_path) == [(1, "train/loss", 1.0)]  # kept, and written when there was space
