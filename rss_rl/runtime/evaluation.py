"""Scoring a split under the ways a selection can be chosen.

Modes: `all` every token; `thresholded` tokens with probability over one half; `sampled` the mean of
K drawn selections; `random` the thresholded selection moved to random tokens of the same sentence,
so that its shares are the same.

'Kept' is the union of heads and dependents over the real tokens of all sentences of an example;
shares are means over examples, precision and recall of rationales are over tokens.
`rationale_f1_random` is the F1 of each pass's selection moved to random tokens.

Legend: B examples, S sentences, N_s tokens of slot s.
"""

from __future__ import annotations

__all__ = ["MODES", "Mode", "evaluate"]

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from envs.core import kept_shares
from envs.rewards import RewardSpec, rewards
from rss_rl.config import RunConfig
from rss_rl.data.batching import plain_batches
from rss_rl.models.inputs import TensorBatch, tensor_batch, to_tensors
from rss_rl.ops.rationales import moved_at_random
from rss_rl.ops.scores import (
    choice_metrics,
    class_metrics,
    precision_recall_f1,
    ranking_metrics,
    score_metrics,
)
from rss_rl.runtime.snapshot import Models, autocast, fixed_threads
from rss_rl.seeding import keyed_uniforms, stream_key
from rss_rl.types import DEPENDENT, HEAD, ROLES, Array, Batch, ExampleSource, LabelSpec

Mode = Literal["all", "thresholded", "sampled", "random"]
MODES: tuple[Mode, ...] = ("all", "thresholded", "sampled", "random")


class _Scored(NamedTuple):
    """Predictions and losses of a batch, [B]; of classes also the log-odds of the last one."""

    predicted: Array
    losses: Array
    odds: Array | None


@dataclass
class _Tally:
    """What is gathered over the batches of one pass."""

    labels: LabelSpec
    columns: dict[str, list[Array]] = field(default_factory=lambda: defaultdict(list))
    found: int = 0
    found_at_random: int = 0
    kept: int = 0
    wanted: int = 0
    has_rationale: bool = False

    def add(
        self,
        batch: Batch,
        selections: Sequence[Array],
        moved: Sequence[Array],
        scored: _Scored,
        spec: RewardSpec,
    ) -> None:
        """Take in one batch; `selections` and the same `moved` at random, S x bool [B, 2, N_s]."""
        losses = scored.losses
        self.columns["gold"].append(batch.labels)
        self.columns["predicted"].append(scored.predicted)
        if scored.odds is not None:
            self.columns["odds"].append(scored.odds)
        if batch.questions is not None and scored.odds is not None:
            self.columns["questions"].append(batch.questions)
        self.columns["loss"].append(losses)
        self.columns["reward"].append(rewards(-losses, selections, batch.valid, spec).total)
        shares = kept_shares(selections, batch.valid)
        self.columns["kept"].append(shares.kept)
        self.columns["heads_kept"].append(shares.heads)
        self.columns["dependents_kept"].append(shares.dependents)
        unions: list[Array] = [s[:, HEAD] | s[:, DEPENDENT] for s in selections]
        for slot, rationale in enumerate(batch.rationale or ()):
            self.has_rationale = True
            self.found += int((unions[slot] & rationale).sum())
            self.found_at_random += int((moved[slot].any(1) & rationale).sum())
            self.kept += int(unions[slot].sum())
            self.wanted += int(rationale.sum())

    def metrics(self) -> dict[str, float]:
        """The measures of the pass."""
        joined = {name: np.concatenate(parts) for name, parts in self.columns.items()}
        gold, predicted = joined.pop("gold"), joined.pop("predicted")
        questions, odds = joined.pop("questions", None), joined.pop("odds", None)
        result = {name: float(values.mean()) for name, values in joined.items()}
        if questions is not None and odds is not None:
            result |= ranking_metrics(odds, gold == len(self.labels.names) - 1, questions)
        if self.labels.kind == "score":
            result |= score_metrics(predicted, gold)
        elif self.labels.chooses:
            result |= choice_metrics(predicted, gold)
        else:
            two = odds if len(self.labels.names) == 2 else None
            result |= class_metrics(predicted, gold, two)
        if self.has_rationale:
            scores = precision_recall_f1(self.found, self.kept, self.wanted)
            names = ("rationale_precision", "rationale_recall", "rationale_f1")
            result |= dict(zip(names, scores, strict=True))
            at_random = precision_recall_f1(self.found_at_random, self.kept, self.wanted)
            result["rationale_f1_random"] = at_random[2]
        return result


def evaluate(
    models: Models,
    examples: ExampleSource,
    config: RunConfig,
    modes: Iterable[Mode],
    *,
    device: torch.device,
) -> dict[str, dict[str, float]]:
    """Metrics of a split under each mode, without dropout; equal calls give equal numbers.

    Metrics: loss and reward (nats; a sampled or random one under its own selections), accuracy and
    majority_accuracy (classes, sentences, candidates), macro_f1 (classes), roc_auc (two classes) or
    pearson, spearman and mse (score), kept, heads_kept, dependents_kept, where the data has
    questions with rival answers map, mrr, map_all and mrr_all (answers sorted by the log-odds of
    the last class, which is the right one), and where it has rationales rationale_precision,
    rationale_recall, rationale_f1 and rationale_f1_random.
    """
    evaluator = _Evaluator(models, config, device, examples.labels)
    with (
        models.evaluating(),
        fixed_threads(config.learner.threads),
        torch.inference_mode(),
        autocast(device, config.learner.precision),
    ):
        return {mode: evaluator.score(examples, mode) for mode in modes}


class _Evaluator:
    def __init__(
        self, models: Models, config: RunConfig, device: torch.device, labels: LabelSpec
    ) -> None:
        self._models, self._config, self._device, self._labels = models, config, device, labels
        # Where the share is what it shall be, the constraint's part of the reward is 0; a lambda
        # that moves would make rewards of different updates incomparable.
        reward = config.reward
        self._spec = RewardSpec(reward.fixed_cost, reward.penalty, reward.coherence_cost)

    def score(self, examples: ExampleSource, mode: Mode) -> dict[str, float]:
        passes = self._config.evaluation.selections if mode == "sampled" else 1
        tallies = [_Tally(self._labels) for _ in range(passes)]
        for rows in plain_batches(examples.lengths(), self._config.evaluation.batch_size):
            batch = examples.batch(rows)
            tensors = tensor_batch(batch, self._device)
            choices = self._choose(batch, tensors, mode, passes)
            for number, tally in enumerate(tallies):
                selections = [choice[number] for choice in choices]
                logits = self._models.classifier(
                    tensors.tokens,
                    tensors.valid,
                    to_tensors(selections, self._device),
                    tensors.marks,
                )
                tally.add(
                    batch,
                    selections,
                    self._moved(selections, batch, mode),
                    self._scored(logits, tensors.labels),
                    self._spec,
                )
        each = [tally.metrics() for tally in tallies]
        shared = set.intersection(*(set(metrics) for metrics in each))
        return {name: float(np.mean([m[name] for m in each])) for name in sorted(shared)}

    def _scored(self, logits: Tensor, labels: Tensor) -> _Scored:
        classifier, odds = self._models.classifier, None
        if self._labels.kind == "classes" and logits.shape[1] > 1:
            odds = (logits[:, -1] - logits[:, :-1].logsumexp(1)).float().cpu().numpy()
        return _Scored(
            classifier.predict(logits).cpu().numpy(),
            classifier.losses(logits, labels).cpu().numpy(),
            odds,
        )

    def _choose(self, batch: Batch, tensors: TensorBatch, mode: Mode, passes: int) -> list[Array]:
        """S x bool [passes, B, 2, N_s]."""
        if mode == "all":
            return [np.repeat(valid[:, None], ROLES, axis=1)[None] for valid in batch.valid]
        chosen = []
        shown = self._models.shown(tensors.tokens, tensors.valid)
        for slot, (vectors, valid) in enumerate(zip(shown, tensors.valid, strict=True)):
            if mode == "sampled":
                chosen.append(self._sample(batch, vectors, valid, slot, passes))
                continue
            selection = self._models.policy.threshold(vectors, valid).cpu().numpy()
            chosen.append(selection[None])
        if mode == "random":
            chosen = [
                moved[None] for moved in self._shuffle([c[0] for c in chosen], batch, "random")
            ]
        return chosen

    def _moved(self, selections: list[Array], batch: Batch, mode: Mode) -> list[Array]:
        """At random, for what chance would find of the rationales; else it is time for nothing."""
        if not batch.rationale:
            return []
        # Moved once more the same way, a random selection would come half back.
        return self._shuffle(selections, batch, "floor" if mode == "random" else "random")

    def _uniforms(self, purpose: str, rows: Array, slot: int, shape: tuple[int, int, int]) -> Array:
        key = stream_key(self._config.seed, "evaluation", purpose, slot)
        return keyed_uniforms(key, rows, *shape)

    def _sample(
        self, batch: Batch, embedded: Tensor, valid: Tensor, slot: int, passes: int
    ) -> Array:
        uniforms = self._uniforms("sampled", batch.rows, slot, (passes, ROLES, valid.shape[1]))
        drawn = torch.from_numpy(uniforms).to(self._device)
        selection = self._models.policy.sample(embedded, valid, drawn).selection
        return selection.cpu().numpy()

    def _shuffle(self, selections: Sequence[Array], batch: Batch, purpose: str) -> list[Array]:
        """The selections under a random permutation of each sentence's real tokens."""
        moved = []
        for slot, (selection, valid) in enumerate(zip(selections, batch.valid, strict=True)):
            uniforms = self._uniforms(purpose, batch.rows, slot, (1, 1, valid.shape[1]))[0, :, 0]
            moved.append(moved_at_random(selection, valid, uniforms))
        return moved
