"""The metrics of a run: Parquet on disk for programs, and its loggers for people.

    run/metrics/part-000000.parquet      scalars; one part for each flush

When a run is resumed, what was written after its checkpoint is dropped, so no point is duplicated.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, SupportsFloat

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from rss_rl.durable import check_file, disk_errors, replacing
from rss_rl.errors import CheckpointError
from rss_rl.logs.logger import RunLogger

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
        loggers: of the run, which are closed with the writer. One that raises gets nothing more.
        failed: called with the name of a logger that raised, and why.

    Raises:
        CheckpointError: metrics on disk are damaged, or writing fails.
    """

    def __init__(
        self,
        run_dir: Path,
        resume_step: int | None = None,
        resume_rows: int | None = None,
        loggers: Sequence[RunLogger] = (),
        failed: Callable[[str, str], None] = lambda name, cause: None,
    ) -> None:
        last = -1 if resume_step is None else resume_step
        self._directory, self._loggers = run_dir / "metrics", list(loggers)
        self._failed = failed
        self._columns: dict[str, list[Any]] = {name: [] for name in SCHEMA.names}
        with self._disk_errors():
            self._directory.mkdir(parents=True, exist_ok=True)
            self._flushed = _drop_after(self._directory, last, resume_rows)

    @property
    def rows(self) -> int:
        """Number of scalars on disk, over all steps and tags."""
        return self._flushed

    def _disk_errors(self) -> AbstractContextManager[None]:
        remedy = "Free disk space or allow writing there, and resume the run"
        return disk_errors(self._directory.parent, "metrics could not be written", remedy)

    def scalars(self, step: int, values: Mapping[str, SupportsFloat]) -> None:
        """Write scalars of one step; NaN and infinite values are counted instead."""
        numbers = {tag: float(value) for tag, value in values.items()}
        finite = {tag: number for tag, number in numbers.items() if math.isfinite(number)}
        if len(finite) < len(numbers):
            finite[NON_FINITE] = float(len(numbers) - len(finite))
        now = time.time()
        for tag, number in finite.items():
            for name, entry in zip(SCHEMA.names, (step, tag, number, now), strict=True):
                self._columns[name].append(entry)
        self._tell(lambda logger: logger.scalars(step, finite))

    def _tell(self, call: Callable[[RunLogger], object]) -> None:
        """Call each logger; whatever one raises must not end the training."""
        for logger in list(self._loggers):
            try:
                call(logger)
            except Exception as error:
                self._loggers.remove(logger)
                self._failed(type(logger).__name__, str(error) or type(error).__name__)

    def text(self, step: int, tag: str, markdown: str) -> None:
        """Write a text."""
        self._tell(lambda logger: logger.text(step, tag, markdown))

    def flush(self) -> None:
        """Flush everything to disk.

        Raises:
            CheckpointError: writing fails.
        """
        self._tell(lambda logger: logger.flush())
        with self._disk_errors():
            if self._columns["step"]:
                parts = _parts(self._directory)
                number = 1 + (_number(parts[-1]) if parts else -1)
                table = pa.table(self._columns, schema=SCHEMA)
                _write(self._directory / f"part-{number:06d}.parquet", table)
                self._flushed += table.num_rows
                self._columns = {name: [] for name in SCHEMA.names}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            self.flush()
        finally:
            self._tell(lambda logger: logger.close(failed=kind is not None))


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
    parts = [path for path in directory.glob("part-*.parquet") if _PART.fullmatch(path.name)]
    return sorted(parts, key=_number)


def _number(part: Path) -> int:
    return int(part.stem.removeprefix("part-"))


def _read(path: Path) -> pa.Table:
    try:
        check_file(path)
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
