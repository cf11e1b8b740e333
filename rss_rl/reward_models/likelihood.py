"""The classifier's log-likelihood of the label, given the selection: the paper's reward.

    score = log p(y* | x*, selection) - w p(y* | x*, the tokens left out)

The second term, the complement, is used if its weight w is not 0: it penalises evidence for the
label that was not selected. It is bounded, so that misleading tokens left out gain nothing.

Source of the complement: Yu, Chang, Zhang and Jaakkola, Rethinking Cooperative Rationalization,
EMNLP 2019 (there a separate classifier reads it).

Legend: M scored selections, C classes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn
from torch.func import functional_call

from rss_rl.components import Component, Options
from rss_rl.errors import ConfigError
from rss_rl.models.dropout import evaluating
from rss_rl.models.inputs import TensorBatch
from rss_rl.reward_models.reward_model import RewardSetup
from rss_rl.types import Array, Batch

COMPLEMENT = "complement"
"""Name of the term for what can be predicted from the tokens left out."""


def _period(batch: Batch) -> int:
    """B if the M examples of a batch are B examples repeated in the same order, else M."""
    again = np.flatnonzero(batch.rows[1:] == batch.rows[:1])
    period = int(again[0]) + 1 if len(again) else len(batch)
    if len(batch) % period or period == len(batch):
        return len(batch)
    # A missed repetition costs only time; equal rows with other words would be an error.
    arrays = [batch.rows, *batch.tokens, *batch.valid]
    repeated = all((a.reshape(-1, period, *a.shape[1:]) == a[:period]).all() for a in arrays)
    return period if repeated else len(batch)


class ClassifierReward:
    """A torch classifier as reward model: no dropout, no gradient, frozen or still learning.

    The classifier is referenced, not copied, so one in training scores with its current weights.
    A subclass says another score by overriding `score`, which may ask `logits`. If a policy is to
    learn it through gates, it overrides `gated_scores`, too: the inherited one is not for it.

    Args:
        classifier: a module with `forward(tokens, valid, selections) -> logits [M, C]` and
            `losses(logits, labels) -> [M]` (minus the log-likelihood); if batches have `marks`,
            `forward` gets them by that name. With `shares_sentences = True`, it gets several
            selections of the same examples with one copy of these.
        device: of its weights, such as "cpu" or "cuda:0".
    """

    _known: tuple[Batch, Sequence[Array], Tensor] | None = None

    def __init__(self, classifier: nn.Module, device: str | torch.device = "cpu") -> None:
        self._classifier = classifier
        self._device = torch.device(device)

    def __init_subclass__(cls) -> None:
        if "score" in vars(cls) and "gated_scores" not in vars(cls):
            cls.gated_scores = None  # type: ignore[assignment]  # as `__eq__` does to `__hash__`

    def score(self, batch: Batch, selections: Sequence[Array]) -> dict[str, Array]:
        """`log_likelihood`, float32 [M] in nats; see `RewardModel.score`."""
        classifier: Any = self._classifier
        logits = self.logits(batch, selections)
        with torch.inference_mode(), evaluating(classifier):
            losses = classifier.losses(logits, self._tensor(batch.labels))  # [M]
        return {"log_likelihood": cast(Array, (-losses).float().cpu().numpy())}

    def logits(self, batch: Batch, selections: Sequence[Array]) -> Tensor:
        """See `LogitsReward.logits`."""
        if self._known is not None:
            known, kept, answer = self._known
            if batch is known and all(map(np.array_equal, selections, kept)):
                return answer
        classifier: Any = self._classifier
        marks = {} if batch.marks is None else {"marks": self._tensor(batch.marks)}
        read = batch.ids if getattr(classifier, "reads_folds", False) else batch.tokens
        unique = len(batch)
        if getattr(classifier, "shares_sentences", False):
            unique = _period(batch)
        with torch.inference_mode(), evaluating(classifier):
            logits: Tensor = classifier(
                [self._tensor(tokens[:unique]) for tokens in read],
                [self._tensor(valid[:unique]) for valid in batch.valid],
                [self._tensor(selection) for selection in selections],
                **marks,
            )
        return logits

    @contextmanager
    def knowing(self, batch: Batch, selections: Sequence[Array], logits: Tensor) -> Iterator[None]:
        """See `LogitsReward.knowing`."""
        self._known = batch, selections, logits
        try:
            yield
        finally:
            self._known = None

    def predict(self, logits: Tensor) -> Array | None:
        """See `LogitsReward.predict`."""
        predict = getattr(self._classifier, "predict", None)
        return None if predict is None else cast(Array, predict(logits).cpu().numpy())

    def gated_scores(self, batch: TensorBatch, gates: Sequence[Tensor]) -> dict[str, Tensor]:
        """`log_likelihood` of gates S x [K, B, 2, N_s], [K * B]; see `GatedReward`."""
        classifier: Any = self._classifier
        samples = len(gates[0])
        fixed = {name: value.detach() for name, value in classifier.named_parameters()}
        arguments = (
            [tokens.repeat(samples, 1) for tokens in batch.tokens],
            [valid.repeat(samples, 1) for valid in batch.valid],
            [gate.flatten(0, 1) for gate in gates],
        )
        with evaluating(classifier):
            logits = functional_call(classifier, fixed, arguments)
        return {"log_likelihood": -classifier.losses(logits, batch.labels.repeat(samples))}

    def _tensor(self, array: Array) -> torch.Tensor:
        return torch.from_numpy(np.ascontiguousarray(array)).to(self._device)


class ComplementReward(ClassifierReward):
    """The log-likelihood, minus w times the label's likelihood from the tokens left out.

    Args:
        weight: w > 0. The others: see `ClassifierReward`.
    """

    def __init__(
        self, classifier: nn.Module, weight: float, device: str | torch.device = "cpu"
    ) -> None:
        super().__init__(classifier, device)
        self._weight = weight

    def score(self, batch: Batch, selections: Sequence[Array]) -> dict[str, Array]:
        """`log_likelihood` and `complement`, float32 [M]; see `RewardModel.score`."""
        rest = [
            valid[:, None] & ~selection
            for selection, valid in zip(selections, batch.valid, strict=True)
        ]
        (left_out,) = super().score(batch, rest).values()
        complement = -np.float32(self._weight) * np.exp(left_out)
        return super().score(batch, selections) | {COMPLEMENT: complement}

    def gated_scores(self, batch: TensorBatch, gates: Sequence[Tensor]) -> dict[str, Tensor]:
        """`log_likelihood` and `complement`, [K * B]; see `GatedReward`."""
        rest = [(1 - gate) * valid[:, None] for gate, valid in zip(gates, batch.valid, strict=True)]
        (left_out,) = super().gated_scores(batch, rest).values()
        complement = -self._weight * torch.exp(left_out)
        return super().gated_scores(batch, gates) | {COMPLEMENT: complement}


class LikelihoodOptions(Options):
    """Options of the classifier's likelihood."""

    complement: float = Field(default=0.0, ge=0)
    """w of -w p(label | the tokens left out), in nats: more of what predicts the label is selected.
    Each selection then costs two evaluations of the classifier.
    """


def _build(setup: RewardSetup, options: LikelihoodOptions) -> ClassifierReward:
    if setup.classifier is None:
        raise ConfigError(
            "there is no classifier whose likelihood could be the reward",
            where="reward.model",
            remedy="Choose a reward model that needs none",
        )
    if options.complement:
        return ComplementReward(setup.classifier, options.complement, setup.device)
    return ClassifierReward(setup.classifier, setup.device)


LIKELIHOOD = Component(
    kind="reward_model",
    name="likelihood",
    help="Log-likelihood of the label by the run's classifier (scores: minus its loss).",
    build=_build,
    options=LikelihoodOptions,
    capabilities=frozenset({"classifier", "gates"}),
)
