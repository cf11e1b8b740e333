"""Training attempts: after learners were lost, the next one resumes from the last checkpoint.

Learner and samplers live in this process, or on a cluster: see `Roles`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

from rss_rl.config import RunConfig
from rss_rl.data.store import Prepared
from rss_rl.errors import LearnersLostError
from rss_rl.logs.events import EventSink
from rss_rl.logs.logger import open_loggers
from rss_rl.logs.metrics import MetricsWriter
from rss_rl.reading.device import find_device
from rss_rl.reading.models import build_prepared_models
from rss_rl.rollouts.backend import Backend, LocalBackend
from rss_rl.rollouts.sampler import Sampler
from rss_rl.runs.checkpoint import Checkpoint, checkpoint_steps, load_checkpoint, state_errors
from rss_rl.training.evaluation import Mode
from rss_rl.training.initial_policy import with_policy
from rss_rl.training.learner import Learner, LocalLearner
from rss_rl.training.observer import Observer
from rss_rl.training.recorder import Recorder
from rss_rl.training.stopping import TimeBudget
from rss_rl.training.trainer import Event, Saved, Stopped, Trainer
from rss_rl.types import Array

_SPLITS = ("dev", "test")
"""Splits scored in a report."""

Scores = dict[str, dict[str, dict[str, float]]]
"""By split, mode and metric."""


class Roles(Protocol):
    """Makes the parts of a run."""

    def learner(self, config: RunConfig, prepared: Prepared) -> AbstractContextManager[Learner]:
        """The learner; leaving the context releases it.

        Raises:
            LearnerError: it cannot be placed or started.
        """

    def backend(self, config: RunConfig, prepared: Prepared, log: EventSink) -> Backend:
        """The samplers, which record failures and restarts in `log`.

        Raises:
            SamplerError: none can be started.
        """


class LocalRoles:
    """Everything in this process, without Ray."""

    def learner(self, config: RunConfig, prepared: Prepared) -> AbstractContextManager[Learner]:
        """See `Roles`."""
        return nullcontext(LocalLearner(config, prepared))

    def backend(self, config: RunConfig, prepared: Prepared, log: EventSink) -> Backend:
        """See `Roles`; a sampler in this process has nothing to log."""
        models, words = build_prepared_models(config, prepared), prepared.vocabulary.words
        device = find_device(config.learner.device)
        return LocalBackend(Sampler(config, models, prepared.split("train"), words, device))


@dataclass(frozen=True)
class LearnersLost:
    """Learner processes died or hung; training resumes from the checkpoint of `update`."""

    error: LearnersLostError
    update: int


@dataclass(frozen=True)
class RunContext:
    """Shared by all parts of a run: data, learners and samplers, when to stop, the observer.

    budget  time for the phases, or None
    """

    prepared: Prepared
    roles: Roles
    stop: Callable[[], bool]
    observer: Observer
    budget: TimeBudget | None = None


@dataclass(frozen=True)
class Trained:
    """The result of the phases: scores of the best checkpoint, updates, and times."""

    scores: Scores
    updates: int
    wall_s: float
    examples_per_second: float


def train_phases(
    config: RunConfig,
    path: Path,
    context: RunContext,
    *,
    initial_policy: Mapping[str, Array] | None = None,
    fork: bool = False,
) -> Generator[Event | LearnersLost, None, Trained | None]:
    """Train in the locked run directory `path`; returns None if it was stopped.

    Args:
        initial_policy: that it begins with, if there is no checkpoint in `path`.
        fork: mark the end of the first phase.

    Raises:
        LearnersLostError: more than `learner.max_restarts` times without a new checkpoint.
        RssError: any expected failure.
    """
    lost, before = 0, -1
    while True:
        start = load_checkpoint(path) if checkpoint_steps(path) else None
        try:
            return (yield from _attempt(config, path, context, start, initial_policy, fork))
        except LearnersLostError as error:
            reached = max(checkpoint_steps(path), default=0)
            # Only losses without progress between them count: spot machines may come and go.
            lost, before = (1 if reached > before else lost + 1), reached
            if lost > config.learner.max_restarts:
                raise
            context.observer.log.write("learner_lost", "warning", cause=str(error))
            yield LearnersLost(error, reached)


def _attempt(
    config: RunConfig,
    path: Path,
    context: RunContext,
    start: Checkpoint | None,
    initial_policy: Mapping[str, Array] | None,
    fork: bool,
) -> Generator[Event, None, Trained | None]:
    """Train from a checkpoint to the end of the last phase, and score the result."""
    step = None if start is None else start.step
    rows = None if start is None else start.state.get("metric_rows")
    observer, roles, prepared = context.observer, context.roles, context.prepared
    observer.begin_from(start)

    def logger_failed(name: str, cause: str) -> None:
        observer.log.write("logger_failed", "warning", logger=name, cause=cause)

    loggers = open_loggers(config, path, step, logger_failed)
    with (
        MetricsWriter(path, step, rows, loggers, logger_failed) as writer,
        roles.learner(config, prepared) as learner,
    ):
        if start is None and initial_policy is not None:
            learner.load_tensors(with_policy(learner.tensors(), initial_policy))

        with state_errors(start):
            trainer = Trainer(
                config,
                prepared,
                learner=learner,
                backend=lambda: roles.backend(config, prepared, observer.log),
                marked=partial(load_checkpoint, path),
                resume=start,
                stop=context.stop,
                budget=context.budget,
            )
            keep_last = config.checkpoint.keep_last
            recorder = Recorder(path, writer, start, keep_last=keep_last, fork=fork)
        # In this order: the copy on a storage is of what the recorder has written.
        consumers = recorder.take, partial(observer.take, part=path, writer=writer)
        with closing(trainer):
            for event in trainer.run():
                for take in consumers:
                    take(event)
                if not isinstance(event, Saved):  # its tensors are the learner's own
                    yield event
                if isinstance(event, Stopped):
                    return None
        return Trained(
            _score(config, learner),
            trainer.updates,
            trainer.wall_seconds,
            trainer.seen / max(trainer.trained_s, 1e-9),
        )


def _score(config: RunConfig, learner: Learner) -> Scores:
    """Metrics of dev and test in the run's modes; the models hold the best checkpoint."""
    modes: list[Mode] = ["thresholded", "sampled", "random"] if config.selects else ["all"]
    scores: Scores = {}
    for split in _SPLITS:
        scores[split] = {}
        for mode in modes:  # one at a time: waiting for a learner's answer has a timeout
            scores[split] |= learner.evaluate(split, [mode])
    return scores
