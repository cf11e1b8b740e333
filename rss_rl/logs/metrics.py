"""The metrics of a run on disk: TensorBoard events for people, Parquet for programs.

    run/tensorboard/NAME/events...       scalars, histograms, texts
    run/metrics/part-000000.parquet      scalars; one part for each flush

When a run is resumed, both drop what was written after its checkpoint, so no point is duplicated.
"""

from __future__ import annotations

import math
import re
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from functools import cache
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, Protocol, Self, SupportsFloat

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from torch.utils.tensorboard import SummaryWriter

from rss_rl.config import RunConfig
from rss_rl.durable import disk_errors, replacing
from rss_rl.errors import CheckpointError
from rss_rl.logs.metric_registry import find_metric
from rss_rl.metrics.measures import OWN, leading_measures
from rss_rl.types import Array

if TYPE_CHECKING:
    import pandas as pd

SCHEMA = pa.schema(
    [
        ("step", pa.int64()),
        ("tag", pa.string()),
        ("value", pa.float64()),
        ("wall_time", pa.float64()),
    ]
)
NON_FINITE = "metrics/non_finite"
_PART = re.compile(r"part-(\d{6,})\.parquet")
_EVENTS_FLUSH_SECONDS = 10
_LONGEST_NAME = 100


class ScalarSink(Protocol):
    """Another sink of scalars, such as a monitoring system; it must not raise."""

    def scalars(self, step: int, values: Mapping[str, SupportsFloat]) -> None:
        """Write the finite scalars of one step, by registered tag."""


class MetricsWriter:
    """Writes the metrics of one run; only one at a time may be open for a run directory.

    Call `flush` right before each checkpoint is saved, so that the metrics up to a checkpoint are
    on disk whenever the checkpoint is.

    Args:
        run_dir: the run directory.
        resume_step: step of the checkpoint the run resumes from; metrics of later steps are
            dropped. None for a new run: all existing metrics are deleted.
        resume_rows: value of `rows` when that checkpoint was saved; later rows of its step are
            dropped, too. None keeps all of that step.
        sinks: further sinks of scalars, besides TensorBoard and Parquet.
        name: of the run in TensorBoard; a run that has event files keeps their folder.

    Raises:
        CheckpointError: metrics on disk are damaged, or writing fails.
    """

    def __init__(
        self,
        run_dir: Path,
        resume_step: int | None = None,
        resume_rows: int | None = None,
        sinks: Sequence[ScalarSink] = (),
        name: str = "",
    ) -> None:
        last = -1 if resume_step is None else resume_step
        self._directory, self._sinks = run_dir / "metrics", tuple(sinks)
        self._columns: dict[str, list[Any]] = {name: [] for name in SCHEMA.names}
        with self._disk_errors():
            self._directory.mkdir(parents=True, exist_ok=True)
            self._flushed = _drop_after(self._directory, last, resume_rows)
            folder = _events_folder(run_dir / "tensorboard", name)
            self._events = _open_event_files(folder, purge_step=last + 1)

    @property
    def rows(self) -> int:
        """Number of scalars on disk, over all steps and tags."""
        return self._flushed

    def _disk_errors(self) -> AbstractContextManager[None]:
        remedy = "Free disk space or allow writing there, and resume the run"
        return disk_errors(self._directory.parent, "metrics could not be written", remedy)

    def scalars(self, step: int, values: Mapping[str, SupportsFloat]) -> None:
        """Write scalars of one step; NaN and infinite values are counted instead.

        Raises:
            ValueError: a tag that is not registered as a scalar; then nothing is written.
        """
        for tag in values:
            find_metric(tag, "scalar")
        numbers = {tag: float(value) for tag, value in values.items()}
        finite = {tag: number for tag, number in numbers.items() if math.isfinite(number)}
        if len(finite) < len(numbers):
            finite[NON_FINITE] = float(len(numbers) - len(finite))
        now = time.time()
        for tag, number in finite.items():
            with self._disk_errors():
                self._events.add_scalar(tag, number, step, walltime=now)
            for name, entry in zip(SCHEMA.names, (step, tag, number, now), strict=True):
                self._columns[name].append(entry)
        for sink in self._sinks:
            sink.scalars(step, finite)

    def charts(self, metric: str) -> None:
        """Write the layout of TensorBoard's Custom Scalars; see `_main_charts`."""
        with self._disk_errors():
            self._events.add_custom_scalars(_main_charts(metric))

    def histogram(self, step: int, tag: str, values: Array) -> None:
        """Write the distribution of `values`, any shape; nothing if it is empty.

        Raises:
            ValueError: a tag that is not registered as a histogram.
        """
        find_metric(tag, "histogram")
        with self._disk_errors():
            if values.size:
                self._events.add_histogram(tag, values, step)

    def text(self, step: int, tag: str, markdown: str) -> None:
        """Write a text.

        Raises:
            ValueError: a tag that is not registered as a text.
        """
        find_metric(tag, "text")
        with self._disk_errors():
            self._events.add_text(tag, markdown, step)

    def flush(self) -> None:
        """Flush everything to disk.

        Raises:
            CheckpointError: writing fails.
        """
        with self._disk_errors():
            self._events.flush()
            if self._columns["step"]:
                parts = _parts(self._directory)
                number = 1 + (_number(parts[-1]) if parts else -1)
                table = pa.table(self._columns, schema=SCHEMA)
                _write(self._directory / f"part-{number:06d}.parquet", table)
                self._flushed += table.num_rows
                self._columns = {name: [] for name in SCHEMA.names}

    def close(self) -> None:
        """Flush, and close the files."""
        self.flush()
        self._events.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def tensorboard_name(config: RunConfig) -> str:
    """The name of a run in TensorBoard: data, policy, share or cost, and seed.

    It is the name of the folder with the run's event files, which TensorBoard names runs by. It
    depends only on the configuration, so a run that is moved keeps it.
    """
    parts = [PurePosixPath(config.data).name]
    if config.selects:
        share = config.reward.target_share
        cost = f"cost-{config.reward.sparsity_cost:g}"
        parts += [config.policy.name, cost if share is None else f"keep-{share:g}"]
    else:
        parts.append("all-words")
    name = "_".join(re.sub(r"[^\w.-]+", "-", part) for part in parts)
    return f"{name[:_LONGEST_NAME]}_seed-{config.seed}".lstrip(".-_")


def read_metrics(run_dir: Path) -> pa.Table:
    """The scalars of a run: step int64, tag string, value float64, wall_time float64.

    Rows are in the order they were written; a run without metrics gives an empty table.

    Raises:
        CheckpointError: a part is damaged.
    """
    tables = [_read(path) for path in _parts(run_dir / "metrics")]
    return pa.concat_tables([SCHEMA.empty_table(), *tables])


def read_curves(run_dir: Path) -> pd.DataFrame:
    """A row per update, a column per tag, those of dev first; NaN where nothing was logged.

    A phase begins at the update where the previous one was scored: the later score stands.

    Raises:
        CheckpointError: a part is damaged.
    """
    logged = read_metrics(run_dir).to_pandas().drop_duplicates(["step", "tag"], keep="last")
    curves = logged.pivot(index="step", columns="tag", values="value")
    return curves[sorted(curves, key=lambda tag: (not tag.startswith("dev/"), tag))]


def _parts(directory: Path) -> list[Path]:
    """Parts in the order they were written."""
    found = [path for path in directory.glob("part-*.parquet") if _PART.fullmatch(path.name)]
    return sorted(found, key=_number)


def _number(part: Path) -> int:
    return int(part.stem.removeprefix("part-"))


def _read(path: Path) -> pa.Table:
    try:
        table = pq.read_table(path, partitioning=None)
        if not table.schema.equals(SCHEMA):
            raise ValueError(f"columns {table.schema.names} are not {SCHEMA.names}")
    except (OSError, ValueError, pa.ArrowException) as error:
        raise CheckpointError(
            f"unreadable: {error}",
            where=str(path),
            remedy="Move the file away; its metrics are lost, but not the run",
        ) from error
    return table


def _write(path: Path, table: pa.Table) -> None:
    with replacing(path) as temporary:
        pq.write_table(table, temporary)


def _drop_after(directory: Path, step: int, rows: int | None) -> int:
    """Drop the rows of later steps, and those beyond the first `rows`; the number that remain.

    Parts without remaining rows are deleted.
    """
    for leftover in directory.glob(".tmp-part-*"):
        leftover.unlink()
    stay = 0
    for part in _parts(directory):
        table = _read(part) if step >= 0 else SCHEMA.empty_table()
        kept = table.filter(pc.less_equal(table["step"], step))
        kept = kept if rows is None else kept.slice(0, max(0, rows - stay))
        stay += kept.num_rows
        if kept.num_rows == 0:
            part.unlink()
        elif kept.num_rows < table.num_rows:
            _write(part, kept)
    return stay


def _main_charts(metric: str) -> dict[str, dict[str, list[Any]]]:
    """The layout of Custom Scalars: by category and title, regular expressions of a chart's tags.

    Args:
        metric: the one that checkpoints are chosen by; shown with the tasks' leading measures.
    """
    dev = "dev/(all|thresholded)"
    own = {measure.name for measure in OWN}
    scores = "|".join(sorted({*leading_measures(), metric} - own))
    charts = {
        "reward, nats": ["^reward/total$"],
        "score on dev": [f"^{dev}/({scores})$"],
        "share of words kept": ["^selection/kept$", f"^{dev}/kept$"],
        "policy lag, versions": ["^policy/lag$", "^policy/lag_max$"],
    }
    return {"rss-rl": {title: ["Multiline", tags] for title, tags in charts.items()}}


def _events_folder(directory: Path, name: str) -> Path:
    """The folder of a run's event files; TensorBoard purges steps only within one folder."""
    older = sorted(directory.rglob("events.out.tfevents.*"))
    return older[-1].parent if older else directory / name


def _open_event_files(directory: Path, purge_step: int) -> SummaryWriter:
    """A writer of a new TensorBoard file, which purges steps from `purge_step` on in older ones."""
    _quieten_writer_thread()
    _wait_for_new_name(directory)
    return SummaryWriter(str(directory), purge_step=purge_step, flush_secs=_EVENTS_FLUSH_SECONDS)


@cache
def _quieten_writer_thread() -> None:
    """Suppress the traceback when TensorBoard's writer thread dies.

    Its error is kept, and raised by the next call of the writer as one clear message.
    """
    before = threading.excepthook

    def hook(failure: threading.ExceptHookArgs) -> None:
        if not type(failure.thread).__module__.startswith("tensorboard."):
            before(failure)

    threading.excepthook = hook


def _wait_for_new_name(directory: Path) -> None:
    """Wait until the second of the newest event file has passed.

    TensorBoard reads event files in the order of their names, which have the second of creation and
    then the process id: of two in one second, the later may be read first, and would purge nothing.
    """
    newest = max((_made_in(path) for path in directory.glob("events.out.tfevents.*")), default=0)
    if newest == int(time.time()):
        time.sleep(max(0.0, newest + 1 - time.time()))


def _made_in(events: Path) -> int:
    second = events.name.split(".")[3]
    return int(second) if second.isdigit() else 0
