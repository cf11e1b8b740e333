"""A checkpoint's state into a program: what does not fit is an error that names the checkpoint."""

from __future__ import annotations

__all__ = ["check_step", "restoring"]

from collections.abc import Iterator
from contextlib import contextmanager

from rss_rl.errors import CheckpointError
from rss_rl.runs.checkpoint import Checkpoint
from rss_rl.runs.checkpoint_files import STATE_FILE

_REMEDY = "Choose another checkpoint of the run, or start the run again"
_MISFITS = (KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError)


@contextmanager
def restoring(checkpoint: Checkpoint | None) -> Iterator[None]:
    """Within it, a state of the wrong form is a CheckpointError; None for a run that begins.

    Checksums show damage, not what somebody else wrote.
    """
    if checkpoint is None:
        yield
        return
    where = str(checkpoint.path / STATE_FILE)
    try:
        yield
    except CheckpointError as error:
        raise CheckpointError(
            error.what, where=error.where or where, remedy=error.remedy or _REMEDY
        ) from error
    except _MISFITS as error:
        raise CheckpointError(
            f"its state is not one of this run: {type(error).__name__}: {str(error)[:200]}",
            where=where,
            remedy=_REMEDY,
        ) from error


def check_step(checkpoint: Checkpoint | None, update: int) -> None:
    """Refuse a state that counts other updates than its checkpoint says.

    Raises:
        ValueError: naming both.
    """
    if checkpoint is not None and checkpoint.step != update:
        raise ValueError(f"its state is of update {update!r:.50}, not {checkpoint.step}")
