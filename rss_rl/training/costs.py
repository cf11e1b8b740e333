"""What an update of each phase costs on this machine, measured before a run."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import closing
from functools import cache, partial
from pathlib import Path

import numpy as np
import torch

from rss_rl.config import RunConfig
from rss_rl.data.store import Prepared, Split
from rss_rl.logs.events import NO_LOG
from rss_rl.reading.device import inference
from rss_rl.reading.scan import scan
from rss_rl.runs.checkpoint import load_checkpoint
from rss_rl.training.attempts import LocalRoles
from rss_rl.training.learner import LocalLearner
from rss_rl.training.stopping import Costs
from rss_rl.training.trainer import Trainer

_UPDATES, _ENOUGH_S = 4, 1.0
"""Updates that are measured at most, and time after which no more are."""
_ROWS = 256
"""Rows of dev that are read."""


def measure_costs(
    config: RunConfig, prepared: Prepared, batch_sizes: Sequence[int] = ()
) -> list[Costs] | None:
    """What updates and evaluations cost, by models that are then thrown away.

    Args:
        batch_sizes: to be measured; none: that of the configuration.

    Returns:
        None where samplers or learners are other processes.
    """
    if config.sampler.backend != "local" or config.learner.actors:
        return None
    roles, measured = LocalRoles(), []
    with torch.inference_mode(False), torch.enable_grad():
        learner = LocalLearner(config, prepared)
        # Made when a phase first samples, as by a run.
        backend = cache(lambda: roles.backend(config, prepared, NO_LOG))
        for batch_size in batch_sizes or [config.batch_size]:
            updates = []
            for phase in config.phases:
                alone = phase.model_copy(update={"steps": _UPDATES + 1, "patience": None})
                trainer = Trainer(
                    config.model_copy(update={"phases": (alone,), "batch_size": batch_size}),
                    prepared,
                    learner=learner,
                    backend=backend,
                    marked=partial(load_checkpoint, Path()),  # no phase comes to its end
                )
                with closing(trainer):
                    updates.append(_update_seconds(trainer))
            measured.append(updates)
    evaluation = _evaluation_seconds(config, prepared.split("dev"), learner)
    return [Costs(updates, evaluation) for updates in measured]


def _update_seconds(trainer: Trainer) -> float:
    """Of an update, without the first: it compiles, and makes the samplers."""
    trainer.update()
    began, count, taken = time.monotonic(), 0, 0.0
    while count < _UPDATES and taken < _ENOUGH_S:
        trainer.update()
        count, taken = count + 1, time.monotonic() - began
    return taken / count


def _evaluation_seconds(config: RunConfig, dev: Split, learner: LocalLearner) -> float:
    """Of reading all of dev, by its first rows."""
    rows, models = np.arange(min(_ROWS, len(dev))), learner.models
    how = config.learner.threads, learner.device, config.learner.precision
    began = time.monotonic()
    with inference(models, *how):
        for scanned in scan(models, dev, config, learner.device, rows):
            scanned.logits(scanned.thresholded if config.selects else scanned.everything)
    return (time.monotonic() - began) * len(dev) / len(rows)
