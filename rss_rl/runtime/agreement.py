"""Scoring a run's selections against the words that people marked.

Selections: `policy` the run's own, tokens with probability over one half; `top-k` the same share of
every text, its tokens of highest probability; `random` the policy's selection moved to random
tokens of the same text. All predict from the selection alone.

With p_j(x) the classifier's probability of the class j that it thinks likeliest when it reads all
of x, and r the selection: comprehensiveness = p_j(x) - p_j(x without r), sufficiency = p_j(x) -
p_j(r) (DeYoung et al. 2020, equations 1 and 2). As the run itself predicts from r, the sufficiency
of r for that prediction is 0 by construction. AOPC: both, averaged over r = the 1, 5, 10, 20 and 50
in a hundred tokens of highest score (equation 3).

Legend: B examples, S sentences, N_s tokens of slot s, C classes.
"""

from __future__ import annotations

__all__ = ["CHOICES", "Choice", "score_agreement", "score_run_agreement"]

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch

from rss_rl.config import RunConfig
from rss_rl.data.batching import plain_batches
from rss_rl.errors import ConfigError, DataError
from rss_rl.models.inputs import TensorBatch, tensor_batch, to_tensors
from rss_rl.ops.rationales import moved_at_random, top_share
from rss_rl.policies.deciding import decide
from rss_rl.runtime.agreement_tally import Probabilities, Tally
from rss_rl.runtime.reading import open_with_data
from rss_rl.runtime.snapshot import Models, autocast, fixed_threads
from rss_rl.seeding import keyed_uniforms, stream_key
from rss_rl.types import ROLES, Array, Batch, ExampleSource

Choice = Literal["policy", "top-k", "random"]
CHOICES: tuple[Choice, ...] = ("policy", "top-k", "random")
_DECIMALS = 5
_SHARES = (0.01, 0.05, 0.1, 0.2, 0.5)
"""Of the tokens, for AOPC; ERASER's."""


@dataclass(frozen=True)
class _Chosen:
    """selections S x bool [B, 2, N_s]; scores S x float [B, N_s], what ranks the tokens."""

    selections: list[Array]
    scores: list[Array]


def score_agreement(
    models: Models,
    examples: ExampleSource,
    config: RunConfig,
    *,
    share: float | None = None,
    device: torch.device,
) -> dict[Choice, dict[str, float]]:
    """Measures of a split under each selection, without dropout; see `Tally.metrics` for names.

    Args:
        share: of the tokens that `top-k` and `random` keep; None for the policy's mean share.

    Raises:
        ConfigError: a run that is not faithful, or has no policy. DataError: no classes, or no
            rationales.
    """
    _check(models, examples, config)
    scorer = _Scorer(models, config, device)
    with (
        models.evaluating(),
        fixed_threads(config.learner.threads),
        torch.inference_mode(),
        autocast(device, config.learner.precision),
    ):
        return scorer.score(examples, share)


def score_run_agreement(
    path: Path,
    split: str,
    *,
    which: str | int = "best",
    share: float | None = None,
    device: str | None = None,
) -> dict[Choice, dict[str, float]]:
    """`score_agreement` of a checkpoint of the run at `path`.

    Raises:
        RssError: as `score_agreement` and `rss_rl.runtime.reading.score_run` say.
    """
    config, models, prepared, place = open_with_data(path, which, device)
    return score_agreement(models, prepared.split(split), config, share=share, device=place)


def _check(models: Models, examples: ExampleSource, config: RunConfig) -> None:
    if config.phases[-1].selection == "all":
        raise ConfigError(
            "the run has no policy, so it selects no words that people could agree with",
            where="phases",
            remedy="Name a run whose last phase learns from sampled selections",
        )
    if not config.predicts:
        raise ConfigError(
            "the run trained no classifier that could predict from the words it selects",
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
            remedy="Prepare eraser-movies or yelp-hat, or a table with --rationale",
        )


class _Scorer:
    def __init__(self, models: Models, config: RunConfig, device: torch.device) -> None:
        self._models, self._config, self._device = models, config, device

    def score(self, examples: ExampleSource, share: float | None) -> dict[Choice, dict[str, float]]:
        tallies = {choice: Tally() for choice in CHOICES}
        equal = self._kept_share(examples) if share is None else share
        for batch, tensors in self._batches(examples):
            whole = self._probabilities(tensors, None)
            for choice, chosen in self._choices(batch, tensors, share, equal).items():
                tallies[choice].add(
                    batch,
                    chosen.selections,
                    chosen.scores,
                    self._without(batch, tensors, whole, chosen.selections),
                    # The tokens of highest probability are the policy's and top-k's alike.
                    None if choice == "top-k" else self._by_rank(batch, tensors, whole, chosen),
                )
        result = {choice: tally.metrics() for choice, tally in tallies.items()}
        for name in ("aopc_comprehensiveness", "aopc_sufficiency"):
            result["top-k"][name] = result["policy"][name]
        return result

    def _batches(self, examples: ExampleSource) -> Iterator[tuple[Batch, TensorBatch]]:
        for rows in plain_batches(examples.lengths(), self._config.evaluation.batch_size):
            batch = examples.batch(rows)
            yield batch, tensor_batch(batch, self._device)

    def _kept_share(self, examples: ExampleSource) -> float:
        """Mean over examples of the share of tokens that the policy keeps."""
        kept = []
        for batch, tensors in self._batches(examples):
            unions = [selection.any(1) for selection in self._policy(tensors).selections]
            tokens = sum(valid.sum(1) for valid in batch.valid)
            kept.append(sum(union.sum(1) for union in unions) / tokens)
        return float(np.concatenate(kept).mean())

    def _policy(self, tensors: TensorBatch) -> _Chosen:
        selections, scores = [], []
        inputs = self._models.shown(tensors.tokens, tensors.valid)
        for shown, valid in zip(inputs, tensors.valid, strict=True):
            selection, chances = decide(self._models.policy, shown, valid)
            selections.append(selection.cpu().numpy())
            # A token is kept for its likelier role. To a policy without context a word that stands
            # twice is the same word: rounding must not say which of the two is likelier.
            scores.append(chances.amax(1).double().cpu().numpy().round(_DECIMALS))
        return _Chosen(selections, scores)

    def _choices(
        self, batch: Batch, tensors: TensorBatch, share: float | None, equal: float
    ) -> dict[Choice, _Chosen]:
        policy = self._policy(tensors)
        top = _Chosen(_top(policy.scores, batch.valid, equal), policy.scores)
        moved, noise = [], []
        for slot, valid in enumerate(batch.valid):
            original = (policy if share is None else top).selections[slot]
            moved.append(moved_at_random(original, valid, self._noise("moved", batch, slot)))
            noise.append(self._noise("scores", batch, slot))
        return {"policy": policy, "top-k": top, "random": _Chosen(moved, noise)}

    def _noise(self, purpose: str, batch: Batch, slot: int) -> Array:
        """Uniform numbers [B, N_s]."""
        key = stream_key(self._config.seed, "agreement", purpose, slot)
        uniforms = keyed_uniforms(key, batch.rows, 1, 1, batch.valid[slot].shape[1])
        return uniforms[0, :, 0]

    def _probabilities(self, tensors: TensorBatch, selections: Sequence[Array] | None) -> Array:
        """Of each class, float64 [B, C]; None selects every token."""
        chosen = None if selections is None else to_tensors(selections, self._device)
        logits = self._models.classifier(tensors.tokens, tensors.valid, chosen, tensors.marks)
        return torch.softmax(logits.double(), -1).cpu().numpy()

    def _without(
        self, batch: Batch, tensors: TensorBatch, whole: Array, selections: Sequence[Array]
    ) -> Probabilities:
        """Of all tokens, of the selection, and of all but the selection."""
        rest = [
            np.repeat((valid & ~selection.any(1))[:, None], ROLES, axis=1)
            for valid, selection in zip(batch.valid, selections, strict=True)
        ]
        return Probabilities(
            whole, self._probabilities(tensors, selections), self._probabilities(tensors, rest)
        )

    def _by_rank(
        self, batch: Batch, tensors: TensorBatch, whole: Array, chosen: _Chosen
    ) -> list[Probabilities]:
        return [
            self._without(batch, tensors, whole, _top(chosen.scores, batch.valid, share))
            for share in _SHARES
        ]


def _top(scores: Sequence[Array], valid: Sequence[Array], share: float) -> list[Array]:
    """The best tokens of each sentence in both roles, S x bool [B, 2, N_s]."""
    kept = (top_share(s, v, share) for s, v in zip(scores, valid, strict=True))
    return [np.repeat(bits[:, None], ROLES, axis=1) for bits in kept]
