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
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch

from rss_rl.config import RunConfig
from rss_rl.envs.rewards import kept_shares
from rss_rl.envs.task import SelectionTask
from rss_rl.metrics.metrics import marked_counts, measured
from rss_rl.models.inputs import to_tensors
from rss_rl.ops.rationale_overlap import shuffled_selection
from rss_rl.reading.device import inference
from rss_rl.reading.models import Models
from rss_rl.reading.scan import Scanned, scan
from rss_rl.rollouts.sampler import run_task
from rss_rl.seeding import keyed_uniforms, stream_key
from rss_rl.types import ROLES, Array, Batch, ExampleSource, LabelSpec

Mode = Literal["all", "thresholded", "sampled", "random"]


_OWN = ("loss", "reward", "kept", "heads_kept", "dependents_kept")


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
    and those of `measured`. Without a trained classifier there is no loss.

    Args:
        task: of the run, if it was already built; its own examples do not matter.
    """
    if task is None:
        task = run_task(config, models, examples, device=device)
    evaluator = _Evaluator(models, config, device, task)
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

    def score(self, examples: ExampleSource, mode: Mode) -> dict[str, float]:
        passes = self.config.evaluation.selections if mode == "sampled" else 1
        drawn: list[dict[str, list[Array]]] = [defaultdict(list) for _ in range(passes)]
        for scanned in scan(self.models, examples, self.config, self.device):
            choices = self._choices(scanned, mode, passes)
            for selections, columns in zip(choices, drawn, strict=True):
                for name, values in self._columns(scanned, selections, mode, examples.labels):
                    columns[name].append(values)
        each = []
        for columns in drawn:
            joined = {name: np.concatenate(parts) for name, parts in columns.items()}
            means = {name: float(joined[name].mean()) for name in _OWN if name in joined}
            each.append(means | measured(examples.labels, joined))
        shared = set.intersection(*(set(metrics) for metrics in each))
        return {name: float(np.mean([m[name] for m in each])) for name in sorted(shared)}

    def _columns(
        self, scanned: Scanned, selections: list[Array], mode: Mode, labels: LabelSpec
    ) -> Iterator[tuple[str, Array]]:
        """What is measured of each example of a batch, [B]: `_OWN`, and as `measured` takes it."""
        batch, classifier = scanned.batch, self.models.classifier
        yield from kept_shares(selections, batch.valid).items()
        if batch.rationale:
            # A random selection is moved by other numbers: the same would half undo the first move.
            moved = self._shuffle(selections, batch, "floor" if mode == "random" else "random")
            yield "marked", marked_counts(batch.rationale, selections, moved)
        if not self.config.predicts:
            yield "reward", self.task.step(batch, selections).total
            return
        logits = scanned.logits(to_tensors(selections, self.device))
        yield "reward", self.task.step(batch, selections, logits=logits).total
        yield "loss", classifier.losses(logits, scanned.tensors.labels).cpu().numpy()
        yield "predicted", classifier.predict(logits).cpu().numpy()
        yield "label", batch.labels
        if batch.questions is not None:
            yield "question", batch.questions
        if labels.kind == "classes" and logits.shape[1] > 1:
            odds = logits[:, -1] - logits[:, :-1].logsumexp(1)
            yield "odds", odds.float().cpu().numpy()
            yield "logits", logits.float().cpu().numpy()

    def _choices(self, scanned: Scanned, mode: Mode, passes: int) -> list[list[Array]]:
        """The selections of each pass, S x bool [B, 2, N_s]."""
        batch = scanned.batch
        if mode == "sampled":
            drawn = []
            for slot, distribution in enumerate(scanned.distributions):
                shape = passes, ROLES, batch.valid[slot].shape[1]
                uniforms = torch.from_numpy(self._uniforms("sampled", batch.rows, slot, shape))
                drawn.append(distribution.sample(uniforms.to(self.device)).selection.cpu().numpy())
            return [list(selections) for selections in zip(*drawn, strict=True)]
        kept = scanned.everything if mode == "all" else scanned.thresholded
        selections = [bits.cpu().numpy() for bits in kept]
        return [self._shuffle(selections, batch, "random") if mode == "random" else selections]

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
