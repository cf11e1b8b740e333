"""Scoring a split with a checkpoint of a run."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import torch

from rss_rl.components import NOTHING, Trust
from rss_rl.config import RunConfig
from rss_rl.data.store import Prepared
from rss_rl.errors import DataError
from rss_rl.rollouts.device import find_device
from rss_rl.rollouts.snapshot import Models, open_data
from rss_rl.rollouts.tasks import run_task
from rss_rl.training.evaluation import Mode, evaluate
from rss_rl.training.trained_models import open_models


def score_run(
    path: Path,
    split: str,
    modes: Iterable[Mode],
    *,
    which: str | int = "best",
    device: str | None = None,
    trust: Trust = NOTHING,
) -> dict[str, dict[str, float]]:
    """Metrics of a run's checkpoint on a split under each mode.

    Args:
        which: `best`, `latest` or a step.
        device: to compute on; None for the one the run was trained on.
        trust: see `open_models`.

    Raises:
        RssError: no such run, checkpoint or split, or the data have been prepared again since.
    """
    config, models, prepared, used_device = open_with_data(path, which, device, trust)
    examples = prepared.split(split)
    task = run_task(config, models, examples, prepared.vocabulary.words, used_device)
    return evaluate(models, examples, config, modes, device=used_device, task=task)


def open_with_data(
    path: Path, which: str | int, device: str | None, trust: Trust = NOTHING
) -> tuple[RunConfig, Models, Prepared, torch.device]:
    """A run's configuration, its models on their device, and its training data.

    Raises:
        RssError: see `score_run`.
    """
    config, models, inputs = open_models(path, which, trust)
    prepared = open_data(config)
    if prepared.manifest != inputs.manifest:
        raise DataError(
            "the data are not those the run was trained on",
            where=config.data,
            remedy="Prepare them as they were, or train again",
        )
    used_device = find_device(device or config.learner.device)
    models.classifier.to(used_device)
    models.policy.to(used_device)
    return config, models, prepared, used_device
