"""A trainer whose updates can be made one by one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from rss_rl.config import RunConfig
from rss_rl.data.store import Prepared
from rss_rl.rollouts.backend import Backend
from rss_rl.runs.checkpoint import Checkpoint
from rss_rl.training.attempts import LocalRoles
from rss_rl.training.learner import Learner, LocalLearner
from rss_rl.training.trainer import Trainer


def saved_by(trainer: Trainer) -> Checkpoint:
    """A checkpoint of the trainer as it stands, in memory."""
    event = trainer.checkpoint()
    tensors = {name: np.asarray(value).copy() for name, value in event.tensors.items()}
    return Checkpoint(event.update, tensors, {**event.state}, Path())


def trainer_of(
    config: RunConfig,
    data: Prepared,
    *,
    learner: Learner | None = None,
    backend: Callable[[], Backend] | None = None,
    marked: Callable[[str], Checkpoint] = lambda name: pytest.fail(name),
    resume: Checkpoint | None = None,
) -> Trainer:
    """In this process; samplers as well, unless there is a `backend`."""
    local = LocalRoles()
    return Trainer(
        config,
        data,
        learner=learner or LocalLearner(config, data),
        backend=backend or (lambda: local.backend(config, data, print)),
        marked=marked,
        resume=resume,
    )
