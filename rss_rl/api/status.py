"""Tell what a run is doing."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from rss_rl.api.options import Typed

if TYPE_CHECKING:
    from rss_rl.training.status import RunStatus


def status(run: Annotated[str | Path, Typed(str)]) -> RunStatus:
    """Tell what a run is doing: its phase, progress, scores, samplers, storage and warnings.

    Args:
        run: Directory of a run, or the storage path of its copy.

    Raises:
        RssError: there is no run, or the storage cannot be read.

    Examples:
        `rss-rl status runs/demo`

        `rss-rl status s3://bucket/run` reads the copy on a storage path.

        `rss-rl status runs/demo --json` for programs; `state` is running, finished, stopped,
        failed, crashed (no process trains, and no error was logged) or not running.
    """
    from rss_rl.training.status import read_status

    return read_status(str(run))
