"""Loggers: where people watch a run, such as TensorBoard; the plug-in kind `logger`.

`loggers: [tensorboard, mlflow]` in a configuration names those of a run. A logger is built when
training begins or resumes, with a `LoggedRun` as its setup, and closed when it ends.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from rss_rl.config import RunConfig
from rss_rl.errors import ConfigError

_LONGEST_NAME = 100


class LoggedRun(NamedTuple):
    """What a logger is told of the run.

    name      says data, policy, share or cost, and seed; see `run_name`
    folder    the run directory: a run that resumes has the one that it had
    settings  the configuration, as plain data
    step      update of the checkpoint that the run resumes from; None for a new run
    """

    name: str
    folder: Path
    settings: Mapping[str, Any]
    step: int | None


class RunLogger:
    """Base class of loggers: what one does not override is not logged.

    Training goes on without a logger that raises. After a resume, the updates that follow the
    checkpoint are logged again.
    """

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        """Log the finite scalars of an update, by tag."""

    def text(self, step: int, tag: str, markdown: str) -> None:
        """Log a text."""

    def flush(self) -> None:
        """Write what is held back: a checkpoint is about to be saved."""

    def close(self, failed: bool) -> None:
        """End the log: the training finished or was stopped, or it failed."""


def open_loggers(
    config: RunConfig,
    folder: Path,
    step: int | None,
    failed: Callable[[str, str], None],
) -> list[RunLogger]:
    """The loggers that a configuration names; for the arguments see `LoggedRun`.

    Args:
        failed: called with the name of a logger that cannot go on with a resumed run, and why: what
            was trained must not depend on it.

    Raises:
        ConfigError: one cannot begin with a new run, by name.
    """
    run = LoggedRun(run_name(config), folder, config.model_dump(mode="json"), step)
    opened: list[RunLogger] = []
    for choice in config.loggers:
        try:
            opened.append(choice.build(run))
        except Exception as error:
            if step is not None:
                failed(choice.name, str(error) or type(error).__name__)
                continue
            remedy = "Correct its settings, or leave it out: loggers='[tensorboard]'"
            if isinstance(error, ModuleNotFoundError):
                remedy = f"Install the package: pip install {error.name}"
            raise ConfigError(
                f"'{choice.name}' cannot log this run: {str(error) or type(error).__name__}",
                where="loggers",
                remedy=remedy,
            ) from error
    return opened


def run_name(config: RunConfig) -> str:
    """The name of a run for people: data, policy, share or cost, and seed.

    It depends only on the configuration, so a run that is moved keeps it.
    """
    parts = [PurePosixPath(config.data).name]
    if config.selects:
        share = config.reward.target_share
        cost = f"cost-{config.reward.sparsity_cost:g}"
        parts += [config.policy.name, cost if share is None else f"keep-{share:g}"]
    else:
        parts.append("all-words")
    name = "_".join(re.sub(r"[^\w.-]+", "-", part) for part in parts)
    return f"{name[:_LONGEST_NAME]}_seed-{config.seed}".lstrip(".-_")
