"""TensorBoard's event files of a run: RUN/tensorboard/NAME/events...

When a run is resumed, TensorBoard drops what was written after its checkpoint.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from rss_rl.components import Component, NoOptions
from rss_rl.logs.logger import LoggedRun, RunLogger
from rss_rl.metrics.measures import leading_measures

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

_FLUSH_SECONDS = 10
_MAIN = "0_main"
"""The group that TensorBoard shows first: reward, share kept, accuracy or its like on dev."""


class TensorBoardLogger(RunLogger):
    """Writes event files; a run that has some keeps their folder."""

    def __init__(self, run: LoggedRun, options: NoOptions) -> None:
        folder = _events_folder(run.folder / "tensorboard", run.name)
        self._events = _open_event_files(folder, purge_step=0 if run.step is None else run.step + 1)
        self._main = {"reward/total": f"{_MAIN}/reward", "selection/kept": f"{_MAIN}/kept"}
        for name in leading_measures():
            self._main[f"dev/thresholded/{name}"] = f"{_MAIN}/{name}_kept_words"
            self._main[f"dev/all/{name}"] = f"{_MAIN}/{name}_all_words"

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        """See `RunLogger`."""
        now = time.time()
        for tag, value in values.items():
            self._events.add_scalar(tag, value, step, walltime=now)
            if tag in self._main:
                self._events.add_scalar(self._main[tag], value, step, walltime=now)

    def text(self, step: int, tag: str, markdown: str) -> None:
        """See `RunLogger`."""
        self._events.add_text(tag, markdown, step)

    def flush(self) -> None:
        """See `RunLogger`."""
        self._events.flush()

    def close(self, failed: bool) -> None:
        """See `RunLogger`."""
        self._events.close()


TENSORBOARD = Component(
    kind="logger",
    name="tensorboard",
    help="Writes TensorBoard's event files into the run directory.",
    build=TensorBoardLogger,
)


def _events_folder(directory: Path, name: str) -> Path:
    """The folder of a run's event files; TensorBoard purges steps only within one folder."""
    older = sorted(directory.rglob("events.out.tfevents.*"))
    return older[-1].parent if older else directory / name


def _open_event_files(directory: Path, purge_step: int) -> SummaryWriter:
    """A writer of a new TensorBoard file, which purges steps from `purge_step` on in older ones."""
    from torch.utils.tensorboard import SummaryWriter  # slow to import, and few processes write

    _wait_for_new_name(directory)
    return SummaryWriter(str(directory), purge_step=purge_step, flush_secs=_FLUSH_SECONDS)


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
