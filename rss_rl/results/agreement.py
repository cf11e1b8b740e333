"""Scoring a run's selections against the words that people marked.

Selections: `policy`, tokens with probability over one half; `top-k`, the same share of every text,
its most probable tokens; `random`, the policy's selection moved to random tokens of the same text,
ranked by random scores. Others take their scores from a file (`rss_rl.data.score_file`), and select
as many tokens as `top-k`. All predict from the selection alone.

Let p_j(x) be the probability of the class j that the classifier predicts from all of x, and r the
selection: comprehensiveness = p_j(x) - p_j(x without r), sufficiency = p_j(x) - p_j(r) (DeYoung et
al. 2020, equations 1 and 2). As the run itself predicts from r, the sufficiency of r for that
prediction is 0 by construction.

Legend: B examples, S sentences, N_s tokens in slot s, C classes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch

from rss_rl.config import RunConfig
from rss_rl.errors import ConfigError, DataError
from rss_rl.models.inputs import TensorBatch, to_tensors
from rss_rl.ops.rationale_overlap import (
    SpanScores,
    document_scores,
    pair_overlap,
    precision_recall_area,
    ranked_scores,
    shuffled_selection,
    span_f1,
    span_scores,
    top_share,
)
from rss_rl.ops.scores import roc_auc
from rss_rl.policies.distributions import word_scores
from rss_rl.reading.device import inference
from rss_rl.reading.models import Models
from rss_rl.reading.scan import Scanned, scan
from rss_rl.seeding import keyed_uniforms, stream_key
from rss_rl.types import ROLES, Array, Batch, ExampleSource

Progress = Callable[[int, int], None]
WordScores = Sequence[Sequence[Array]]
"""For each row of a split S x float64 [N_s], which rank its words."""


class _Chosen(NamedTuple):
    """selections S x bool [B, 2, N_s]; scores S x float [B, N_s], which rank the tokens."""

    selections: list[Array]
    scores: list[Array]


def score_agreement(
    models: Models,
    examples: ExampleSource,
    config: RunConfig,
    *,
    share: float | None = None,
    others: Mapping[str, WordScores] | None = None,
    device: torch.device,
    progress: Progress = lambda done, end: None,
) -> dict[str, dict[str, float]]:
    """Measures of a split under each selection, without dropout; see `Tally.metrics` for names.

    Args:
        share: of the tokens that `top-k`, `random` and others keep; None: the policy's mean share.
        others: further rankings of the tokens, by the name of their selection.
        progress: called with the number of examples scored, and of how many.

    Raises:
        ConfigError: the run is not of the faithful form, or lacks a policy that is needed.
        DataError: the labels are not classes, or there are no rationales.
    """
    others = others or {}
    _check(examples, config, bool(others), share)
    with inference(models, config.learner.threads, device, config.learner.precision):
        return _Scorer(models, config, others, device).score(examples, share, progress)


def _padded(by_row: WordScores, batch: Batch) -> list[Array]:
    """Scores of the words of a batch, S x float64 [B, N_s]."""
    arrays = []
    for slot, valid in enumerate(batch.valid):
        padded = np.zeros(valid.shape)
        padded[valid] = np.concatenate([by_row[row][slot] for row in batch.rows.tolist()])
        arrays.append(padded)
    return arrays


def _check(examples: ExampleSource, config: RunConfig, others: bool, share: float | None) -> None:
    if not config.selects and (not others or share is None):
        raise ConfigError(
            "the run has no policy, so it selects no words that people could agree with",
            where="phases",
            remedy="Name a run whose last phase learns from sampled selections, or give --share to"
            " score the rankings of others alone",
        )
    if not config.predicts:
        raise ConfigError(
            "the run trained no classifier to predict from the selected words",
            where="phases",
            remedy="Name a run that has a phase with supervised: true",
        )
    if examples.labels.kind != "classes":
        raise DataError(
            f"labels are {examples.labels.kind}; agreement with people is measured for classes"
        )
    if not config.model.encoder.can("kept_only"):
        raise ConfigError(
            "not the faithful form: words outside the selection reach the prediction",
            where="model.encoder",
            remedy=f"Train with other options of {config.model.encoder.name}, or another encoder:"
            " one with the capability `kept_only`, see `rss-rl components encoders`",
        )
    if examples.batch([0]).rationale is None:
        raise DataError(
            "the data do not say which words people marked",
            remedy="Prepare a source with marked words, such as eraser-movies, or a table with"
            " --rationale",
        )


@dataclass(frozen=True)
class _Scorer:
    models: Models
    config: RunConfig
    others: Mapping[str, WordScores]
    device: torch.device

    def score(
        self, examples: ExampleSource, share: float | None, progress: Progress
    ) -> dict[str, dict[str, float]]:
        tallies: dict[str, Tally] = defaultdict(Tally)
        equal = self._kept_share(examples) if share is None else share
        done = 0
        for scanned in scan(self.models, examples, self.config, self.device):
            batch, all_words = scanned.batch, self._read(scanned.tensors, None)
            for choice, chosen in self._choices(scanned, share, equal).items():
                rest = [
                    np.repeat((valid & ~bits.any(1))[:, None], ROLES, axis=1)
                    for valid, bits in zip(batch.valid, chosen.selections, strict=True)
                ]
                read = [self._read(scanned.tensors, bits) for bits in (chosen.selections, rest)]
                tallies[choice].add(batch, chosen, all_words, *read)
            done += len(batch)
            progress(done, len(examples))
        return {choice: tally.metrics() for choice, tally in tallies.items()}

    def _kept_share(self, examples: ExampleSource) -> float:
        """Mean over examples of the share of tokens that the policy keeps."""
        kept = []
        for scanned in scan(self.models, examples, self.config, self.device):
            unions = [selection.any(1).cpu().numpy() for selection in scanned.thresholded]
            tokens = sum(valid.sum(1) for valid in scanned.batch.valid)
            kept.append(sum(union.sum(1) for union in unions) / tokens)
        return float(np.concatenate(kept).mean())

    def _choices(self, scanned: Scanned, share: float | None, equal: float) -> dict[str, _Chosen]:
        batch = scanned.batch
        noise = [self._noise("scores", batch, slot) for slot in range(batch.sentences)]
        chosen: dict[str, _Chosen] = {}
        moved = _top(noise, batch.valid, equal)
        if self.config.selects:
            policy = _Chosen(
                [selection.cpu().numpy() for selection in scanned.thresholded],
                [word_scores(distribution.probs) for distribution in scanned.distributions],
            )
            top = _Chosen(_top(policy.scores, batch.valid, equal), policy.scores)
            chosen = {"policy": policy, "top-k": top}
            moved = [
                shuffled_selection(original, valid, self._noise("moved", batch, slot))
                for slot, (original, valid) in enumerate(
                    zip((policy if share is None else top).selections, batch.valid, strict=True)
                )
            ]
        chosen["random"] = _Chosen(moved, noise)
        for name, by_row in self.others.items():
            scores = _padded(by_row, batch)
            chosen[name] = _Chosen(_top(scores, batch.valid, equal), scores)
        return chosen

    def _noise(self, purpose: str, batch: Batch, slot: int) -> Array:
        """Uniform random numbers, [B, N_s]."""
        key = stream_key(self.config.seed, "agreement", purpose, slot)
        uniforms = keyed_uniforms(key, batch.rows, 1, 1, batch.valid[slot].shape[1])
        return uniforms[0, :, 0]

    def _read(self, tensors: TensorBatch, selections: Sequence[Array] | None) -> Array:
        """Class probabilities [B, C] from selections S x [B, 2, N_s]; None selects every token."""
        chosen = None if selections is None else to_tensors(selections, self.device)
        logits = self.models.classifier(tensors.tokens, tensors.valid, chosen, tensors.marks)
        return torch.softmax(logits.double(), -1).cpu().numpy()


def _top(scores: Sequence[Array], valid: Sequence[Array], share: float) -> list[Array]:
    """Top tokens of each sentence, selected in both roles, S x bool [B, 2, N_s]."""
    kept = (top_share(s, v, share) for s, v in zip(scores, valid, strict=True))
    return [np.repeat(bits[:, None], ROLES, axis=1) for bits in kept]


class Tally:
    """Accumulates the measures of one selection over batches; a few numbers per example."""

    def __init__(self) -> None:
        self._values: dict[str, list[float]] = defaultdict(list)
        self._spans: list[SpanScores] = []

    def add(
        self, batch: Batch, chosen: _Chosen, all_words: Array, alone: Array, rest: Array
    ) -> None:
        """Add a batch.

        Args:
            whole, alone, rest: class probabilities [B, C] from all tokens, from the selection, and
                from its complement.
        """
        parts = {"accuracy": alone, "accuracy_all": all_words, "accuracy_rest": rest}
        for name, probabilities in parts.items():
            self._values[name] += (probabilities.argmax(1) == batch.labels).tolist()
        likeliest = all_words.argmax(1)[:, None]
        for name, read in (("comprehensiveness", rest), ("sufficiency", alone)):
            drops = np.take_along_axis(all_words - read, likeliest, 1)[:, 0]  # [B]
            self._values[name] += drops.tolist()
        for row in range(len(batch)):
            kept = tokens = 0
            for slot, valid in enumerate(batch.valid):
                real = valid[row]
                union = chosen.selections[slot][row].any(0)[real]
                kept, tokens = kept + int(union.sum()), tokens + len(union)
                if batch.rationale is not None:
                    wanted = batch.rationale[slot][row][real]
                    # Nobody marks a question, or a post that is not hateful.
                    if wanted.any():
                        self._document(union, chosen.scores[slot][row][real], wanted)
                if slot == 0 and batch.annotations is not None:
                    self._people(union, chosen.scores[0][row][real], batch.annotations[row][real])
            self._values["kept"].append(kept / tokens)

    def metrics(self) -> dict[str, float]:
        """The measures, means over examples or documents.

        accuracy, kept                  predicting from the selection; share of tokens selected
        accuracy_all, accuracy_rest     from all tokens, and from all but the selection
        token_precision, _recall, _f1   of selected tokens, mean over documents
        iou_f1, auprc                   of spans; area under the precision-recall curve
        budget_token_f1, budget_iou_f1  of the top tokens by score: see `ranked_scores`
        comprehensiveness, sufficiency  see the module docstring
        similarity, annotator_f1        against single annotators: area under the ROC curve (the
                                        behavioural similarity of Sen et al., ACL 2020) and token
                                        F1, means over annotators
        people_similarity, people_f1    the same between annotators: the human ceiling
        """
        result = {name: float(np.mean(values)) for name, values in self._values.items()}
        return result | {"iou_f1": span_f1(self._spans)}

    def _document(self, kept: Array, scores: Array, wanted: Array) -> None:
        self._spans.append(span_scores(kept, wanted))
        scored = document_scores(kept, wanted)
        if scored is not None:
            names = ("token_precision", "token_recall", "token_f1")
            for name, value in zip(names, scored, strict=True):
                self._values[name].append(value)
        area = precision_recall_area(scores, wanted)
        if area is not None:
            self._values["auprc"].append(area)
        ranked = ranked_scores(scores, wanted)
        if ranked is not None:
            for name, value in ranked._asdict().items():
                self._values[name].append(value)

    def _people(self, kept: Array, scores: Array, annotations: Array) -> None:
        """Compare with each annotator, and annotators with each other."""
        count = int(annotations.max(initial=0)).bit_length()
        maps = [(annotations >> k & 1).astype(bool) for k in range(count)]
        areas = [area for one in maps if (area := roc_auc(scores, one)) is not None]
        f1 = [score[2] for one in maps if (score := document_scores(kept, one)) is not None]
        if areas and f1:
            self._values["similarity"].append(float(np.mean(areas)))
            self._values["annotator_f1"].append(float(np.mean(f1)))
        among = pair_overlap(maps)
        if among is not None:
            self._values["people_similarity"].append(among[0])
            self._values["people_f1"].append(among[1])
