"""Scores of a split with selections chosen in different modes.

Modes: `all` every token; `thresholded` tokens with probability over one half; `sampled` the mean of
K drawn selections; `random` the thresholded selection moved to random tokens of the same sentence,
so that its shares are the same.

'Kept' is the union of heads and dependents over the real tokens of all sentences of an example;
shares are means over examples. For the other measures see `rss_rl.metrics`.

Legend: B examples, S sentences, N_s tokens of slot s.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch

from rss_rl.config import RunConfig
from rss_rl.envs.rewards import kept_shares
from rss_rl.envs.task import SelectionTask
from rss_rl.metrics.metrics import Metric, Scored
from rss_rl.metrics.run_metrics import RunMetrics
from rss_rl.models.inputs import to_tensors
from rss_rl.ops.rationale_overlap import shuffled_selection
from rss_rl.rollouts.scan import Scanned, scan
from rss_rl.rollouts.snapshot import Models, inference
from rss_rl.rollouts.tasks import run_task
from rss_rl.seeding import keyed_uniforms, stream_key
from rss_rl.types import ROLES, Array, Batch, ExampleSource

Mode = Literal["all", "thresholded", "sampled", "random"]
MODES: tuple[Mode, ...] = ("all", "thresholded", "sampled", "random")


class _Tally:
    """Measures accumulated over the batches of one pass."""

    def __init__(self, metrics: Sequence[Metric]) -> None:
        self._metrics = metrics
        self._columns: dict[str, list[Array]] = defaultdict(list)

    def add(self, scored: Scored, reward: Array) -> None:
        """Add a batch and its rewards, float32 [B]."""
        if scored.losses is not None:
            self._columns["loss"].append(scored.losses)
        self._columns["reward"].append(reward)
        shares = kept_shares(scored.selections, scored.batch.valid)
        self._columns["kept"].append(shares.kept)
        self._columns["heads_kept"].append(shares.heads)
        self._columns["dependents_kept"].append(shares.dependents)
        for metric in self._metrics:
            metric.add(scored)

    def result(self) -> dict[str, float]:
        """The measures of the pass."""
        joined = {name: np.concatenate(parts) for name, parts in self._columns.items()}
        result = {name: float(values.mean()) for name, values in joined.items()}
        for metric in self._metrics:
            result |= metric.result()
        return result


def evaluate(
    models: Models,
    examples: ExampleSource,
    config: RunConfig,
    modes: Iterable[Mode],
    *,
    device: torch.device,
    task: SelectionTask | None = None,
) -> dict[str, dict[str, float]]:
    """Metrics of a split in each mode, without dropout; equal calls give equal numbers.

    Metrics: loss and reward (under the mode's own selections), kept, heads_kept, dependents_kept,
    and those of `RunMetrics`. Without a trained classifier there is no loss.

    Args:
        task: of the run, if it was already built; its own examples do not matter.
    """
    if task is None:
        task = run_task(config, models, examples, device=device)
    classes = examples.labels.kind == "classes"
    metrics = RunMetrics(config, examples.labels)
    evaluator = _Evaluator(models, config, device, task, metrics, classes)
    with inference(models, config.learner.threads, device, config.learner.precision):
        return {mode: evaluator.score(examples, mode) for mode in modes}


@dataclass(frozen=True)
class _Evaluator:
    # The task here has no lambda in force: as it moves, the rewards of different updates would not
    # be comparable.
    models: Models
    config: RunConfig
    device: torch.device
    task: SelectionTask
    metrics: RunMetrics
    classes: bool

    def score(self, examples: ExampleSource, mode: Mode) -> dict[str, float]:
        passes = self.config.evaluation.selections if mode == "sampled" else 1
        tallies = [_Tally(self.metrics.begin()) for _ in range(passes)]
        for scanned in scan(self.models, examples, self.config, self.device):
            batch = scanned.batch
            choices = self._choices(scanned, mode, passes)
            for selections, tally in zip(choices, tallies, strict=True):
                moved = self._moved(selections, batch, mode)
                if self.config.predicts:
                    tally.add(*self._predict(scanned, selections, moved))
                else:
                    reward = self.task.step(batch, selections)
                    tally.add(Scored(batch, tuple(selections), tuple(moved)), reward.total)
        each = [tally.result() for tally in tallies]
        shared = set.intersection(*(set(metrics) for metrics in each))
        return {name: float(np.mean([m[name] for m in each])) for name in sorted(shared)}

    def _predict(
        self, scanned: Scanned, selections: list[Array], moved: list[Array]
    ) -> tuple[Scored, Array]:
        """The classifier's predictions under the selections, and the rewards, float32 [B]."""
        classifier, batch, odds = self.models.classifier, scanned.batch, None
        logits = scanned.logits(to_tensors(selections, self.device))
        if self.classes and logits.shape[1] > 1:
            odds = (logits[:, -1] - logits[:, :-1].logsumexp(1)).float().cpu().numpy()
        scored = Scored(
            batch,
            tuple(selections),
            tuple(moved),
            predicted=classifier.predict(logits).cpu().numpy(),
            losses=classifier.losses(logits, scanned.tensors.labels).cpu().numpy(),
            odds=odds,
        )
        return scored, self.task.step_logits(logits, batch, selections).total

    def _choices(self, scanned: Scanned, mode: Mode, passes: int) -> list[list[Array]]:
        """The selections of each pass, S x bool [B, 2, N_s]."""
        batch = scanned.batch
        if mode == "sampled":
            drawn = []
            for slot, found in enumerate(scanned.distributions):
                shape = passes, ROLES, batch.valid[slot].shape[1]
                uniforms = torch.from_numpy(self._uniforms("sampled", batch.rows, slot, shape))
                drawn.append(found.sample(uniforms.to(self.device)).selection.cpu().numpy())
            return [list(selections) for selections in zip(*drawn, strict=True)]
        kept = scanned.everything if mode == "all" else scanned.thresholded
        selections = [bits.cpu().numpy() for bits in kept]
        return [self._shuffle(selections, batch, "random") if mode == "random" else selections]

    def _moved(self, selections: list[Array], batch: Batch, mode: Mode) -> list[Array]:
        """Selections moved at random, for the chance level of rationale metrics; else empty."""
        if not batch.rationale:
            return []
        # A random selection is moved by other numbers: the same would half undo the first move.
        return self._shuffle(selections, batch, "floor" if mode == "random" else "random")

    def _uniforms(self, purpose: str, rows: Array, slot: int, shape: tuple[int, int, int]) -> Array:
        key = stream_key(self.config.seed, "evaluation", purpose, slot)
        return keyed_uniforms(key, rows, *shape)

    def _shuffle(self, selections: Sequence[Array], batch: Batch, purpose: str) -> list[Array]:
        """The selections under a random permutation of each sentence's real tokens."""
        moved = []
        for slot, (selection, valid) in enumerate(zip(selections, batch.valid, strict=True)):
            uniforms = self._uniforms(purpose, batch.rows, slot, (1, 1, valid.shape[1]))[0, :, 0]
            moved.append(shuffled_selection(selection, valid, uniforms))
        return moved
