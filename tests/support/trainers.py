"""A trainer whose updates can be made one by one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from rss_rl.config import RunConfig
from rss_rl.data.store import Prepared
from rss_rl.logs.metrics import MetricsWriter
from rss_rl.rollouts.backend import Backend
from rss_rl.runs.checkpoint import Checkpoint
from rss_rl.training.attempts import LocalRoles
from rss_rl.training.learner import Learner, LocalLearner
from rss_rl.training.trainer import Trainer


def trainer_of(
    config: RunConfig,
    data: Prepared,
    path: Path,
    *,
    learner: Learner | None = None,
    backend: Callable[[], Backend] | None = None,
    resume: Checkpoint | None = None,
) -> Trainer:
    """In this process, with metrics in `path`; samplers as well, unless there is a `backend`."""
    local = LocalRoles()
    return Trainer(
        config,
        path,
        data,
        MetricsWriter(path),
        learner=learner or LocalLearner(config, data),
        backend=backend or (lambda: local.backend(config, data, print)),
        resume=resume,
    )
