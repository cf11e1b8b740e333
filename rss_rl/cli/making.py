"""Who makes the runs of a table or a frontier: this process, or a cluster started for them."""

from __future__ import annotations

__all__ = ["run_workers"]

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from rss_rl.cli.table_progress import TableProgress
    from rss_rl.results.tables.plan import Plan, PlannedRun
    from rss_rl.results.tables.work import Workers

    class ClusterWorkers(Workers, Protocol):
        """Workers on a cluster, which let go of what they hold."""

        def close(self) -> None:
            """Stop, and remove what asked runs to stop."""

    MakeWorkers = Callable[
        [int, Path, Callable[[], bool], Callable[[PlannedRun, str], None]], ClusterWorkers
    ]


@contextmanager
def run_workers(
    plan: Plan,
    jobs: int,
    stop: Callable[[], bool],
    progress: TableProgress,
    find_class: Callable[[], MakeWorkers],
) -> Iterator[Workers]:
    """Who makes the runs; a cluster that was started for them ends with them.

    Args:
        jobs: runs at a time; 1: in this process, without Ray.
        stop: asked while runs are made.
        find_class: the class of workers on a cluster, called before one is started: it imports Ray
            and refuses what is not installed.
    """
    from rss_rl.results.tables.work import LocalWorkers

    if jobs == 1:
        yield LocalWorkers(stop, progress.says)
        return
    from rss_rl.cluster.connection import connect, shutdown

    make = find_class()
    cluster = connect(cores=jobs)
    try:
        for note in cluster.notes:
            progress.tell(note)
        with closing(make(jobs, plan.folder, stop, progress.says)) as workers:
            yield workers
    finally:
        shutdown(cluster)
