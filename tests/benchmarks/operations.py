"""Operations of torch and reads of the host, in each kind of step of a run.

A GPU that is given many small operations waits for their launches, and the host waits wherever it
reads a number of a tensor, or makes a tensor whose size is in one. Runs are the cases of digest.py;
figures are medians over the steps of a phase.

operations  those that are no views
reads       that return a number of a tensor to the host; on a CPU, lists of a tensor are not seen
shapes      whose result has a size that the data determine: a GPU waits for these, too
"""

from __future__ import annotations

import io
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple
from unittest.mock import patch

import torch
from torch.utils._python_dispatch import TorchDispatchMode

sys.path.insert(0, str(Path(__file__).resolve().parent))
import digest

from rss_rl.rollouts.sampler import Sampler
from rss_rl.training.learner import LocalLearner


class Counts(NamedTuple):
    """See the module."""

    operations: float
    reads: float
    shapes: float


class Counter(TorchDispatchMode):
    """Counts what torch computes while it is entered."""

    def __init__(self) -> None:
        super().__init__()
        self.operations = self.reads = self.shapes = 0

    def __torch_dispatch__(
        self, function: Any, types: Any, given: Any = (), named: Any = None
    ) -> Any:
        self.operations += not function.is_view
        self.reads += torch.Tag.data_dependent_output in function.tags
        self.shapes += torch.Tag.dynamic_output_shape in function.tags
        return function(*given, **(named or {}))


@contextmanager
def counting(found: dict[str, list[Counts]]) -> Iterator[None]:
    """Note the counts of each sampling, update and evaluation of the runs within."""

    def counted(own: Callable[..., Any], name: Callable[..., str]) -> Callable[..., Any]:
        def step(*given: Any, **named: Any) -> Any:
            with Counter() as counter:
                result = own(*given, **named)
            counts = Counts(counter.operations, counter.reads, counter.shapes)
            found[name(*given, **named)].append(counts)
            return result

        return step

    def kind(learner: Any, number: int, rows: Any, turn: Any, rollout: Any = None) -> str:
        parts = ("classifier", turn.supervised), ("policy", turn.policy)
        return f"update of {' and '.join(part for part, learns in parts if learns)}"

    with (
        patch.object(Sampler, "sample", counted(Sampler.sample, lambda *_, **__: "sampling")),
        patch.object(LocalLearner, "update", counted(LocalLearner.update, kind)),
        patch.object(
            LocalLearner, "evaluate", counted(LocalLearner.evaluate, lambda *_, **__: "evaluation")
        ),
    ):
        yield


def count(case: str, attention: str, folder: Path) -> dict[str, Counts]:
    """Medians by step of a run of one case of digest.py."""
    found: dict[str, list[Counts]] = defaultdict(list)
    form = {"model.attention": attention}
    with counting(found), patch.dict(digest.SMALL, form), redirect_stdout(io.StringIO()):
        digest.train(case, folder)
    return {name: Counts(*map(median, zip(*steps, strict=True))) for name, steps in found.items()}
