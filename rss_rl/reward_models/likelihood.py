"""The classifier's log-likelihood of the label, given the selection: the paper's reward.

    score = log p(y* | x*, selection) - w p(y* | x*, the tokens left out)

The second term, the complement, is used if its weight w is not 0: it penalises evidence for the
label that was not selected. It is bounded, so that misleading tokens left out gain nothing.

Source of the complement: Yu, Chang, Zhang and Jaakkola, Rethinking Cooperative Rationalization,
EMNLP 2019 (there a separate classifier reads it).

Legend: M scored selections, C classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn

from rss_rl.components import Component, Options
from rss_rl.errors import ConfigError
from rss_rl.models.dropout import evaluating
from rss_rl.reward_models.protocol import RewardSetup
from rss_rl.types import Array, Batch

COMPLEMENT = "complement"
"""Name of the term for what can be predicted from the tokens left out."""


def _period(batch: Batch) -> int:
    """B if the M examples of a batch are B examples repeated in the same order, else M."""
    again = np.flatnonzero(batch.rows[1:] == batch.rows[:1])
    found = int(again[0]) + 1 if len(again) else len(batch)
    if len(batch) % found or found == len(batch):
        return len(batch)
    # A missed repetition costs only time; equal rows with other words would be an error.
    arrays = [batch.rows, *batch.tokens, *batch.valid]
    repeated = all((a.reshape(-1, found, *a.shape[1:]) == a[:found]).all() for a in arrays)
    return found if repeated else len(batch)


class ClassifierReward:
    """A torch classifier as reward model: no dropout, no gradient, frozen or still learning.

    The classifier is referenced, not copied, so one in training scores with its current weights.

    Args:
        classifier: a module with `forward(tokens, valid, selections) -> logits [M, C]` and
            `losses(logits, labels) -> [M]` (minus the log-likelihood); if batches have `marks`,
            `forward` gets them by that name. With `shares_sentences = True`, it gets several
            selections of the same examples with one copy of these.
        device: of its weights, such as "cpu" or "cuda:0".
    """

    def __init__(self, classifier: nn.Module, device: str | torch.device = "cpu") -> None:
        self._classifier = classifier
        self._device = torch.device(device)

    def score(self, batch: Batch, selections: Sequence[Array]) -> dict[str, Array]:
        """`log_likelihood`, float32 [M] in nats; see `RewardModel.score`."""
        with torch.inference_mode(), evaluating(self._classifier):
            return self.score_logits(self._logits(batch, selections), batch.labels)

    def score_and_predict(
        self, batch: Batch, selections: Sequence[Array]
    ) -> tuple[dict[str, Array], Array | None]:
        """See `PredictingReward.score_and_predict`."""
        predict = getattr(self._classifier, "predict", None)
        with torch.inference_mode(), evaluating(self._classifier):
            logits = self._logits(batch, selections)
            predicted = None if predict is None else predict(logits).cpu().numpy()
            return self.score_logits(logits, batch.labels), predicted

    def _logits(self, batch: Batch, selections: Sequence[Array]) -> Tensor:
        """Of the classifier, [M, C]."""
        classifier: Any = self._classifier
        marks = {} if batch.marks is None else {"marks": self._tensor(batch.marks)}
        read = batch.ids if getattr(classifier, "reads_folds", False) else batch.tokens
        unique = len(batch)
        if getattr(classifier, "shares_sentences", False):
            unique = _period(batch)
        logits: Tensor = classifier(
            [self._tensor(tokens[:unique]) for tokens in read],
            [self._tensor(valid[:unique]) for valid in batch.valid],
            [self._tensor(selection) for selection in selections],
            **marks,
        )
        return logits

    def score_logits(self, logits: Tensor, labels: Array) -> dict[str, Array]:
        """See `LogitsReward.score_logits`."""
        classifier: Any = self._classifier
        with torch.inference_mode():
            losses = classifier.losses(logits, self._tensor(labels))  # [M]
        return {"log_likelihood": cast(Array, (-losses).float().cpu().numpy())}

    def _tensor(self, array: Array) -> torch.Tensor:
        return torch.from_numpy(np.ascontiguousarray(array)).to(self._device)


class ComplementReward:
    """The log-likelihood, minus w times the label's likelihood from the tokens left out.

    Args:
        likelihood: of the classifier. weight: w > 0.
    """

    def __init__(self, likelihood: ClassifierReward, weight: float) -> None:
        self._likelihood, self._weight = likelihood, np.float32(weight)

    def score(self, batch: Batch, selections: Sequence[Array]) -> dict[str, Array]:
        """`log_likelihood` and `complement`, float32 [M]; see `RewardModel.score`."""
        return self._likelihood.score(batch, selections) | self._complement(batch, selections)

    def score_and_predict(
        self, batch: Batch, selections: Sequence[Array]
    ) -> tuple[dict[str, Array], Array | None]:
        """See `PredictingReward.score_and_predict`."""
        named, predicted = self._likelihood.score_and_predict(batch, selections)
        return named | self._complement(batch, selections), predicted

    def _complement(self, batch: Batch, selections: Sequence[Array]) -> dict[str, Array]:
        rest = [
            valid[:, None] & ~selection
            for selection, valid in zip(selections, batch.valid, strict=True)
        ]
        (left_out,) = self._likelihood.score(batch, rest).values()
        return {COMPLEMENT: -self._weight * np.exp(left_out)}


class LikelihoodOptions(Options):
    """Options of the classifier's likelihood."""

    complement: float = Field(default=0.0, ge=0)
    """w of -w p(label | the tokens left out), in nats: more of what predicts the label is selected.
    Each selection then costs two evaluations of the classifier.
    """


def _build(setup: RewardSetup, options: LikelihoodOptions) -> ClassifierReward | ComplementReward:
    if setup.classifier is None:
        raise ConfigError(
            "there is no classifier whose likelihood could be the reward",
            where="reward.model",
            remedy="Choose a reward model that needs none",
        )
    likelihood = ClassifierReward(setup.classifier, setup.device)
    return ComplementReward(likelihood, options.complement) if options.complement else likelihood


LIKELIHOOD = Component(
    kind="reward_model",
    name="likelihood",
    help="Log-likelihood of the label by the run's classifier (scores: minus its loss).",
    build=_build,
    options=LikelihoodOptions,
    capabilities=frozenset({"classifier", "gates"}),
)
