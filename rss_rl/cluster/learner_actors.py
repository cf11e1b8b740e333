"""Learners as Ray actors: each holds all weights and takes its shard of every batch.

Rank 0 publishes, evaluates and is checkpointed; the others differ only in their shards. If one is
lost, all are restarted, and the updates since the last checkpoint are repeated.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence
from typing import Any, Self

import ray
from ray.exceptions import GetTimeoutError, RayActorError, RayError, RayTaskError
from ray.util.placement_group import PlacementGroup, placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from rss_rl.cluster.actors import ActorProcess, last_line, this_process
from rss_rl.config import RunConfig
from rss_rl.errors import LearnerError, LearnersLostError, RssError
from rss_rl.learners.group import ProcessGroup
from rss_rl.learners.phases import Turn
from rss_rl.reading.device import find_device
from rss_rl.reading.memory import memory_errors
from rss_rl.reading.models import open_data
from rss_rl.rollouts.rollout import Rollout
from rss_rl.rollouts.snapshot import StoredDelta, StoredSnapshot, bundles
from rss_rl.training.evaluation import Mode
from rss_rl.training.learner import LocalLearner
from rss_rl.types import Array

_AFTERMATH_S = 3.0
"""Time for Ray to report the death of the learner that made the others fail."""

_LESS = "Lower model.hidden or batch_size, or take nodes with more memory"


class LearnerActor:
    """One learner in its own process."""

    def __init__(self, config: dict[str, Any], rank: int) -> None:
        self._config, self._rank = RunConfig.model_validate(config), rank
        self._learner: LocalLearner | None = None

    def process(self) -> ActorProcess:
        """The actor's process."""
        return this_process()

    def rendezvous(self) -> tuple[str, int]:
        """Address and a free port of this node, for the process group to join at."""
        with socket.socket() as free:
            free.bind(("", 0))
            address: str = ray.util.get_node_ip_address()  # type: ignore[no-untyped-call]
            return address, free.getsockname()[1]

    @memory_errors("for a learner", _LESS)
    def join(self, address: str, port: int) -> None:
        """Join the process group and build the learner."""
        settings = self._config.learner
        group = ProcessGroup(
            self._rank,
            settings.actors,
            address=address,
            port=port,
            device=find_device(settings.device),
            timeout_s=settings.timeout_s,
        )
        self._learner = LocalLearner(self._config, open_data(self._config), group)

    @memory_errors("for a learner", _LESS)
    def call(self, method: str, *arguments: Any) -> Any:
        """Call a method of the learner."""
        return getattr(self._learner, method)(*arguments)

    def publish(self, version: int, full: bool) -> list[Any]:
        """(bundle, place, part, full, bytes) of each delta; then the `bundles`."""
        assert self._learner is not None
        stored = bundles(self._learner.publish(version, full=full).deltas)
        described = [
            (number, place, delta.part, delta.full, delta.bytes)
            for number, bundle in enumerate(stored)
            for place, delta in enumerate(bundle)
        ]
        return [described, *stored]

    def tensors(self) -> dict[str, Array]:
        """The tensors of a checkpoint, as arrays."""
        assert self._learner is not None
        named = self._learner.tensors()
        return {name: value.detach().cpu().numpy() for name, value in named.items()}


class RayLearners:
    """A group of learner actors, a `Learner`; a context manager that ends them.

    Args:
        config: of the run; its data must be readable from every node.

    Raises:
        LearnerError: they cannot be placed or started.
    """

    def __init__(self, config: RunConfig) -> None:
        self._config = config.learner
        self._actors: list[Any] = []
        self._processes: dict[int, ActorProcess] = {}
        self._group = self._reserve()
        try:
            self._actors = [self._spawn(config, rank) for rank in range(self._config.actors)]
            limit = self._config.start_timeout_s
            self._processes = dict(enumerate(self._all("process", timeout_s=limit)))
            meeting = self._get([self._actors[0].rendezvous.remote()], "rendezvous", limit)[0]
            self._all("join", *meeting, timeout_s=limit)
        except LearnersLostError as error:
            self.close()
            raise LearnerError(f"not started: {error.what}", remedy=error.remedy) from error
        except BaseException:
            self.close()
            raise

    def _reserve(self) -> PlacementGroup:
        settings = self._config
        bundle = {"CPU": float(settings.threads)}
        if settings.gpus:
            bundle["GPU"] = settings.gpus
        group: PlacementGroup = placement_group([bundle] * settings.actors)
        if not group.wait(timeout_seconds=settings.start_timeout_s):
            remove_placement_group(group)
            raise LearnerError(
                f"the cluster has no room for {settings.actors} learners of {bundle} each,"
                f" within {settings.start_timeout_s:.0f} s",
                remedy="Add nodes, or change learner.actors, threads or gpus",
            )
        return group

    def _spawn(self, config: RunConfig, rank: int) -> Any:
        where = PlacementGroupSchedulingStrategy(
            placement_group=self._group, placement_group_bundle_index=rank
        )
        remote = ray.remote(LearnerActor).options(
            num_cpus=self._config.threads,
            num_gpus=self._config.gpus,
            scheduling_strategy=where,
            max_restarts=0,
            max_task_retries=0,
        )
        return remote.remote(config.model_dump(mode="json"), rank)

    def _all(self, method: str, *arguments: Any, timeout_s: float | None = None) -> list[Any]:
        """The results of a method on every rank.

        Raises:
            LearnerError: one of them died or hung.
        """
        calls = [getattr(actor, method).remote(*arguments) for actor in self._actors]
        return self._get(calls, method, timeout_s or self._config.timeout_s)

    def _get(self, calls: list[Any], what: str, timeout_s: float) -> list[Any]:
        """The results of calls to ranks 0, 1, ..., in that order."""
        try:
            return list(ray.get(calls, timeout=timeout_s))
        except GetTimeoutError as error:
            _, silent = ray.wait(calls, num_returns=len(calls), timeout=0)
            names = ", ".join(self._name(calls.index(call)) for call in silent)
            raise LearnersLostError(
                f"no response to '{what}' within {timeout_s:.0f} s from {names}",
                remedy="Check that host; for long evaluations raise learner.timeout_s",
            ) from error
        except RayError as error:
            raise self._explained(calls, error) from error

    def _explained(self, calls: list[Any], first: RayError) -> RssError:
        """The error to raise: the cause, rather than one of its consequences on other ranks."""
        ray.wait(calls, num_returns=len(calls), timeout=_AFTERMATH_S)
        for rank, call in enumerate(calls):
            try:
                ray.get(call, timeout=0)
            except RayActorError as error:
                return LearnersLostError(
                    f"{self._name(rank)} died: {last_line(error)}",
                    remedy="Check that host's memory and its Ray logs",
                )
            except (RayError, RssError):
                continue
        cause = first.cause if isinstance(first, RayTaskError) else first
        if isinstance(cause, LearnerError):
            return LearnersLostError(cause.what, where=cause.where, remedy=cause.remedy)
        if isinstance(cause, RssError):
            return cause
        kind = LearnersLostError if isinstance(cause, RayError) else LearnerError
        return kind(
            f"a learner failed: {last_line(first)}",
            remedy="If it is a bug, --debug shows the traceback",
        )

    def _name(self, rank: int) -> str:
        process = f" ({self._processes[rank]})" if rank in self._processes else ""
        return f"learner {rank}{process}"

    def _first(self, method: str, *arguments: Any) -> Any:
        """The result of a method of the learner on rank 0."""
        call = self._actors[0].call.remote(method, *arguments)
        return self._get([call], method, self._config.timeout_s)[0]

    def update(
        self, number: int, rows: Array, turn: Turn, rollout: Rollout | None = None
    ) -> dict[str, float]:
        """See `Learner`."""
        every = self._all("call", "update", number, rows, turn, ray.put(rollout))
        scalars: dict[str, float] = every[0]
        return scalars

    def publish(self, version: int, *, full: bool = True) -> StoredSnapshot:
        """See `Learner`; the deltas stay in the object store."""
        # The driver fetches what describes them, samplers those of the two bundles that they lack.
        call = self._actors[0].publish.options(num_returns=3)
        described, *references = call.remote(version, full)
        deltas = self._get([described], "publish", self._config.timeout_s)[0]
        stored = (
            StoredDelta(part, full, size, references[bundle], place)
            for bundle, place, part, full, size in deltas
        )
        return StoredSnapshot(version, tuple(stored))

    def evaluate(self, split: str, modes: Sequence[Mode]) -> dict[str, dict[str, float]]:
        """See `Learner`."""
        scores: dict[str, dict[str, float]] = self._first("evaluate", split, modes)
        return scores

    def showcase(self) -> str:
        """See `Learner`."""
        shown: str = self._first("showcase")
        return shown

    def tensors(self) -> dict[str, Any]:
        """See `Learner`."""
        call = self._actors[0].tensors.remote()
        named: dict[str, Any] = self._get([call], "tensors", self._config.timeout_s)[0]
        return named

    def load_tensors(self, tensors: Mapping[str, Array]) -> None:
        """See `Learner`."""
        self._all("call", "load_tensors", ray.put(dict(tensors)))

    def close(self) -> None:
        """End the learners; may be called twice."""
        for actor in self._actors:
            ray.kill(actor)
        self._actors = []
        remove_placement_group(self._group)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
