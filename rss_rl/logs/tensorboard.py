"""The event files that TensorBoard reads."""

from __future__ import annotations

__all__ = ["open_event_files"]

import threading
import time
from functools import cache
from pathlib import Path

from torch.utils.tensorboard import SummaryWriter

_FLUSH_SECONDS = 10


def open_event_files(directory: Path, purge_step: int) -> SummaryWriter:
    """A writer of a new event file in `directory`.

    Args:
        purge_step: what older files say of this step and later ones is forgotten.

    Raises:
        OSError: the disk refuses.
    """
    _quieten_writer_thread()
    _wait_for_new_name(directory)
    return SummaryWriter(str(directory), purge_step=purge_step, flush_secs=_FLUSH_SECONDS)


@cache
def _quieten_writer_thread() -> None:
    """Let the thread that writes TensorBoard's files die without a traceback.

    Its error is kept and raised again by the next call of the writer, as one clear message.
    """
    before = threading.excepthook

    def hook(told: threading.ExceptHookArgs) -> None:
        if not type(told.thread).__module__.startswith("tensorboard."):
            before(told)

    threading.excepthook = hook


def _wait_for_new_name(directory: Path) -> None:
    """Let the second of the newest event file pass.

    TensorBoard reads event files in the order of their names, which hold the second they were made
    in and then the process: of two in one second the later may come first, and its purge mark would
    wipe nothing.
    """
    newest = max((_made_in(path) for path in directory.glob("events.out.tfevents.*")), default=0)
    if newest == int(time.time()):
        time.sleep(max(0.0, newest + 1 - time.time()))


def _made_in(events: Path) -> int:
    second = events.name.split(".")[3]
    return int(second) if second.isdigit() else 0
