"""What a run is doing, asked from another process."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rss_rl.training.status import RunStatus


def status(run: str) -> RunStatus:
    """Tell what a run is doing: its phase, progress, scores, samplers, storage and warnings.

    Args:
        run: Directory of a run, or the storage path of its copy.

    Raises:
        RssError: there is no run, or the storage cannot be read.

    Examples:
        `rss-rl status runs/demo`

        `rss-rl status s3://bucket/run --follow` reads the copy on a storage path, repeatedly.

        `rss-rl status runs/demo --json` for programs; `state` is running, finished, stopped,
        failed, crashed (no process trains, and no error was logged) or not running.
    """
    from rss_rl.training.status import read_status

    return read_status(run)
