"""How long training and inference take: measured after training, all rows of a dataset in turn.

The times of training itself would compare rows that other work slowed down differently. Here one
process holds all rows of a dataset with the weights they ended with, and gives each a few updates
in turn, over and over; the median of a row's turns is its time. What is timed is an update of the
last phase (of ReSAN: sampling, classifier and policy), and a pass over test with the selections
that count, metrics included.
"""

from __future__ import annotations

__all__ = ["Effort", "machine", "measure"]

import math
import os
import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from rss_rl.config import RunConfig
from rss_rl.data.store import Prepared, open_prepared
from rss_rl.logs.events import NO_LOG
from rss_rl.results.tables.plan import PlannedRun
from rss_rl.results.tables.timings import Timing, identity
from rss_rl.rollouts.backend import Backend
from rss_rl.runs.checkpoint import load_checkpoint
from rss_rl.training.evaluation import Mode
from rss_rl.training.learner import LocalLearner
from rss_rl.training.roles import LocalRoles
from rss_rl.training.session import Session

_ENDLESS = 10**9


@dataclass(frozen=True)
class Effort:
    """How much is measured.

    warm      updates before the first that counts
    turns     of each row; updates: in a turn
    passes    over test
    """

    warm: int = 3
    turns: int = 5
    updates: int = 4
    passes: int = 3


_FULL = Effort()


class _Contender:
    """A row with its final weights, ready for an update or a pass."""

    def __init__(self, run: PlannedRun, prepared: Prepared) -> None:
        config = _last_phase(run.config)
        self._mode: Mode = run.row.mode
        self._learner = LocalLearner(config, prepared)
        self._learner.load_tensors(load_checkpoint(run.path, "best").tensors)
        self._session = Session(config, prepared, self._learner, self._backend(config, prepared))
        rows = len(prepared.split("train"))
        self.updates_an_epoch = math.ceil(rows / config.batch_size)
        self.update_s: list[float] = []
        self.inference_s: list[float] = []

    @staticmethod
    def _backend(config: RunConfig, prepared: Prepared) -> Callable[[], Backend]:
        return lambda: LocalRoles().backend(config, prepared, NO_LOG)

    def train(self, updates: int) -> float:
        """Seconds of an update, over so many."""
        started = time.perf_counter()
        for _ in range(updates):
            self._session.update()
        return (time.perf_counter() - started) / updates

    def infer(self) -> float:
        """Seconds of a pass over test."""
        started = time.perf_counter()
        self._learner.evaluate("test", [self._mode])
        return time.perf_counter() - started

    def close(self) -> None:
        """Release the sampler."""
        self._session.close()


def _last_phase(config: RunConfig) -> RunConfig:
    phase = config.phases[-1].model_copy(update={"steps": _ENDLESS, "patience": None})
    return config.model_copy(update={"phases": (phase,)})


def measure(
    runs: Sequence[PlannedRun],
    *,
    effort: Effort = _FULL,
    stop: Callable[[], bool] = lambda: False,
) -> dict[str, Timing] | None:
    """Time finished runs of one place, a run of each row; None where it was stopped.

    Raises:
        RssError: a run that cannot be opened.
    """
    prepared = open_prepared(runs[0].place.prepared)
    contenders = {run.row.name: _Contender(run, prepared) for run in runs}
    try:
        for turn in range(effort.turns + 1):
            for contender in contenders.values():
                if stop():
                    return None
                seconds = contender.train(effort.updates if turn else effort.warm)
                if turn:
                    contender.update_s.append(seconds)
        # After training, since samplers and learner share the weights' memory of the last update.
        for _ in range(effort.passes):
            for contender in contenders.values():
                if stop():
                    return None
                contender.inference_s.append(contender.infer())
    finally:
        for contender in contenders.values():
            contender.close()
    return {
        run.row.name: Timing(
            tuple(contenders[run.row.name].update_s),
            tuple(contenders[run.row.name].inference_s),
            contenders[run.row.name].updates_an_epoch,
            identity(run),
        )
        for run in runs
    }


def machine() -> dict[str, Any]:
    """The hardware and the library that times depend on."""
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "torch": torch.__version__,
        "load_before": [round(load, 2) for load in os.getloadavg()],
    }


def _processor() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return platform.processor()
    names = [line.partition(":")[2].strip() for line in text.splitlines() if "model name" in line]
    return names[0] if names else platform.processor()
