"""Scoring files with Ray Data: actors hold the model and score one file at a time.

A row of the dataset is the name of a file: Ray only starts, scales and replaces actors, and a file
is scored as in one process. The rows of the files never pass through Ray.
"""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import ray
from ray.exceptions import RayError

from rss_rl.cluster.actors import last_line
from rss_rl.cluster.connection import connected
from rss_rl.components import Trust
from rss_rl.errors import ClusterError, DataError, RssError, StorageError
from rss_rl.inference.artifact import PackedModel
from rss_rl.inference.model import Model, load_model
from rss_rl.inference.predict import Counts, Job, Scorer

_ATTEMPTS = 3


class _Attempts:
    """An actor that counts the attempts at each file, also when they kill the scoring actor."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()

    def begin(self, name: str) -> int:
        """Count an attempt; their number."""
        self._counts[name] += 1
        return self._counts[name]


class _Scorer:
    """An actor of Ray Data, which returns RssErrors as rows.

    Files have limited attempts: Ray Data would retry a file that kills its actor for ever.
    """

    def __init__(self, job: Job, packed: list[Any], trust: Trust, attempts: Any) -> None:
        self._packed, self._trust = ray.get(packed[0]), trust
        self._scorer, self._attempts = Scorer(job, self._load), attempts

    def _load(self) -> Model:
        return load_model(self._packed, trust=self._trust)

    def __call__(self, batch: dict[str, Any]) -> dict[str, list[Any]]:
        name = str(batch["name"][0])
        counts, error = Counts(0, 0), {"what": "", "where": "", "remedy": ""}
        try:
            if ray.get(self._attempts.begin.remote(name)) > _ATTEMPTS:
                raise DataError(
                    f"the process that scored it was lost {_ATTEMPTS} times",
                    where=name,
                    remedy="Check the memory of the nodes; a row may be too long for it",
                )
            counts = self._scorer.score(name)
        except RssError as failure:
            error = {"what": failure.what, "where": failure.where, "remedy": failure.remedy}
        row = {"name": name, "rows": counts.rows, "bad": counts.bad} | error
        return {key: [value] for key, value in row.items()}


def score_on_ray(
    packed: PackedModel,
    job: Job,
    trust: Trust,
    note: Callable[[str], None],
    *,
    address: str,
) -> Iterator[Counts]:
    """Score the files of a job, of which there must be some, on a cluster.

    Args:
        note: called with notes about the cluster for the user.
        address: see `connect`.

    Yields:
        The counts of each file, in order of completion. KeyboardInterrupt ends it at once;
        unfinished files are scored by the next call.

    Raises:
        RssError: no cluster; a file cannot be scored; actors are lost repeatedly; a node has other
            folders than this machine.
    """
    # Silences an error message of Ray for each actor pool whose actors may not restart.
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")
    with connected(note, address) as cluster:
        try:
            attempts = ray.remote(_Attempts).options(num_cpus=0).remote()
            for row in _dataset(packed, job, trust, attempts).iter_rows():
                if row["what"]:
                    raise DataError(row["what"], where=row["where"], remedy=row["remedy"])
                if not job.wrote(row["name"]):
                    raise StorageError(
                        "was written on another machine",
                        where=job.outputs[row["name"]],
                        remedy="Give --input and --output as URIs, or on a disk that all nodes"
                        " share",
                    )
                yield Counts(row["rows"], row["bad"])
        except RayError as error:
            raise ClusterError(
                f"a file could not be scored: {last_line(error)}",
                where=cluster.address,
                remedy="Check that the nodes have this rss-rl and enough memory; the same command"
                " continues",
            ) from error


def _dataset(packed: PackedModel, job: Job, trust: Trust, attempts: Any) -> Any:
    import ray.data

    logging.getLogger("ray.data").setLevel(logging.CRITICAL)
    ray.data.DataContext.get_current().enable_progress_bars = False
    names = list(job.outputs)
    cpus = ray.cluster_resources().get("CPU", 1)  # type: ignore[no-untyped-call]
    files = ray.data.from_items([{"name": name} for name in names], override_num_blocks=len(names))
    return files.map_batches(
        _Scorer,
        batch_size=1,
        fn_constructor_args=(job, [ray.put(packed)], trust, attempts),
        compute=ray.data.ActorPoolStrategy(
            size=min(len(names), max(1, int(cpus))), max_tasks_in_flight_per_actor=1
        ),
        num_cpus=1,
    )
