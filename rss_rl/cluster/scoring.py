"""Scoring a folder with Ray Data: actors that hold the model, and files that are given to them.

A row of the dataset is the name of a file, so that Ray starts, scales and replaces the actors, and
what a file gives is what it gives in one process. Rows themselves never pass through Ray.
"""

from __future__ import annotations

__all__ = ["check_ray_data", "score_on_ray"]

import logging
import queue
import threading
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import Any

import ray
from ray.exceptions import RayError

from rss_rl.cluster.actors import last_line
from rss_rl.errors import ClusterError, ConfigError, DataError, RssError
from rss_rl.inference.artifact import PackedModel
from rss_rl.inference.folder import FileScorer, FolderJob
from rss_rl.inference.scoring import Counts

_RETRIES = 2
_POLL_S = 0.2


def check_ray_data() -> None:
    """Refuse to continue without Ray Data.

    Raises:
        ConfigError: naming the extra that has it.
    """
    if not find_spec("pandas"):
        raise ConfigError(
            "Ray Data needs pandas, which is not installed",
            remedy="Install rss-rl[data], or leave --address out to work on this machine alone",
        )


class _Scorer:
    """An actor of Ray Data's; errors of ours come back as rows, whole."""

    def __init__(self, job: FolderJob, packed: list[Any]) -> None:
        self._scorer = FileScorer(job, ray.get(packed[0]))

    def __call__(self, batch: dict[str, Any]) -> dict[str, list[Any]]:
        (name,) = batch["name"]
        counts, error = Counts(0, 0), {"what": "", "where": "", "remedy": ""}
        try:
            counts = self._scorer.score(str(name))
        except RssError as found:
            error = {"what": found.what, "where": found.where, "remedy": found.remedy}
        row = {"rows": counts.rows, "bad": counts.bad} | error
        return {key: [value] for key, value in row.items()}


def score_on_ray(packed: PackedModel, job: FolderJob, stop: Callable[[], bool]) -> Iterator[Counts]:
    """Score the files that wait, on the cluster that this process has joined.

    Args:
        stop: polled; True ends it, and files that are in work are scored by the next call.

    Yields:
        What was in a file, in the order in which they are done.

    Raises:
        RssError: a file cannot be scored; the actors are lost again and again.
    """
    results: queue.Queue[Any] = queue.Queue()
    rows = _dataset(packed, job).iter_rows()
    threading.Thread(target=_collect, args=(rows, results), daemon=True).start()
    for _ in job.waiting:
        row = _next(results, stop)
        if row is None:
            return
        if row["what"]:
            raise DataError(row["what"], where=row["where"], remedy=row["remedy"])
        yield Counts(row["rows"], row["bad"])


def _dataset(packed: PackedModel, job: FolderJob) -> Any:
    import ray.data

    logging.getLogger("ray.data").setLevel(logging.WARNING)
    ray.data.DataContext.get_current().enable_progress_bars = False
    names = job.waiting
    cpus = ray.cluster_resources()["CPU"]  # type: ignore[no-untyped-call]
    actors = min(len(names), int(cpus))
    found = ray.data.from_items([{"name": name} for name in names], override_num_blocks=len(names))
    return found.map_batches(
        _Scorer,
        batch_size=1,
        fn_constructor_args=(job, [ray.put(packed)]),
        compute=ray.data.ActorPoolStrategy(size=actors, max_tasks_in_flight_per_actor=1),
        num_cpus=1,
        max_restarts=_RETRIES,
        max_task_retries=_RETRIES,
    )


def _collect(rows: Any, results: queue.Queue[Any]) -> None:
    """In a thread, as waiting for Ray Data cannot be interrupted."""
    try:
        for row in rows:
            results.put(row)
    except Exception as error:  # a thread's would be lost
        results.put(error)


def _next(results: queue.Queue[Any], stop: Callable[[], bool]) -> dict[str, Any] | None:
    """A row as it comes; None where it was stopped before."""
    while not stop():
        try:
            found: dict[str, Any] | Exception = results.get(timeout=_POLL_S)
        except queue.Empty:
            continue
        if isinstance(found, RayError):
            raise ClusterError(
                f"a scorer was lost: {last_line(found)}",
                remedy="Look at the memory of the nodes, and repeat the command to go on",
            ) from found
        if isinstance(found, Exception):
            raise found
        return found
    return None
