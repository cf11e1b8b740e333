"""Where the learner and samplers of a run live: in this process, or on a cluster."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

from rss_rl.config import RunConfig
from rss_rl.data.store import Prepared
from rss_rl.logs.events import EventSink
from rss_rl.logs.logger import RunLogger
from rss_rl.rollouts.backend import Backend, LocalBackend
from rss_rl.rollouts.device import find_device
from rss_rl.rollouts.sampler import Sampler
from rss_rl.rollouts.snapshot import build_prepared_models
from rss_rl.training.learner import Learner, LocalLearner


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

    def loggers(self, run: str) -> Sequence[RunLogger]:
        """Loggers of the run called `run`, besides those that its configuration names."""


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

    def loggers(self, run: str) -> Sequence[RunLogger]:
        """See `Roles`; none."""
        return ()
