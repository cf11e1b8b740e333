"""Post-hoc explanations of a trained classifier: a score for each word of an example.

They attribute the log-odds of the right class, log p - log(1 - p), of the classifier that reads all
words: words that speak for that class score high.

Legend: B examples, S sentences, N_s tokens in slot s, n words of all sentences of an example,
K selections, E embedding size.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from rss_rl.errors import ConfigError, nearest
from rss_rl.models.inputs import TensorBatch
from rss_rl.models.sentences import SentencesClassifier
from rss_rl.ops.attribution import gradient_times_input, integrated_gradients, lime, occlusion
from rss_rl.ops.smoothing import bumps
from rss_rl.rollouts.snapshot import Models
from rss_rl.seeding import keyed_uniforms, stream_key
from rss_rl.types import ROLES, Array, Batch

_LIME_VARIANTS = 1000
_TOKENS_AT_ONCE = 1 << 16
"""Tokens per forward pass of the classifier."""


class ScoreSource(Protocol):
    """Scores that rank the tokens of examples."""

    knows_labels: bool
    """Whether it uses the right classes, so that the accuracy of its selections is meaningless."""

    def __call__(self, batch: Batch, tensors: TensorBatch) -> list[Array]:
        """Scores, S x float64 [B, N_s]; arbitrary on padding."""


@dataclass(frozen=True)
class _Example:
    """The classifier's output for one example, as a function of its words.

    tokens  S x int64 [1, N_s], without padding
    label   the right class
    seed    of the run. row: of the example in its split
    """

    classifier: SentencesClassifier
    tokens: tuple[Tensor, ...]
    label: int
    seed: int
    row: int

    @property
    def lengths(self) -> list[int]:
        """Words of each sentence."""
        return [ids.shape[1] for ids in self.tokens]

    def of_words(self, left: Tensor) -> Tensor:
        """Log-odds [K] with only the words in the masks bool [K, n]."""
        at_once = max(1, _TOKENS_AT_ONCE // max(1, left.shape[1]))
        return torch.cat([self._of_few(part) for part in torch.split(left, at_once)])

    def _of_few(self, left: Tensor) -> Tensor:
        parts = torch.split(left.to(self.tokens[0].device), self.lengths, dim=1)
        selections = [bits[:, None].expand(-1, ROLES, -1).contiguous() for bits in parts]
        valid = [torch.ones_like(ids, dtype=torch.bool) for ids in self.tokens]
        return self._log_odds(self.classifier(self.tokens, valid, selections)).cpu()

    def vectors(self) -> Tensor:
        """Word vectors, [n, E]."""
        return torch.cat([self.classifier.embedding(ids)[0] for ids in self.tokens])

    def of_vectors(self, vectors: Tensor) -> Tensor:
        """Log-odds, a scalar, with the word vectors [n, E] instead."""
        sentences = []
        for part in torch.split(vectors, self.lengths):
            valid = torch.ones(1, len(part), dtype=torch.bool, device=part.device)
            selection = valid[:, None].expand(-1, ROLES, -1)
            sentences.append(self.classifier.encoder(part[None], valid, selection))
        return self._log_odds(self.classifier.head(sentences))[0]

    def _log_odds(self, logits: Tensor) -> Tensor:
        """Log-odds of the label from logits [M, C]: its logit - logsumexp(others), float64 [M]."""
        logits = logits.double()
        others = torch.arange(logits.shape[1], device=logits.device) != self.label
        return logits[:, self.label] - logits[:, others].logsumexp(1)


def _lime(example: _Example) -> Tensor:
    width = sum(example.lengths) + 1
    key = stream_key(example.seed, "agreement", "lime")
    uniforms = keyed_uniforms(key, np.array([example.row]), _LIME_VARIANTS, 1, width)[:, 0, 0]
    return lime(example.of_words, torch.from_numpy(uniforms))


METHODS: Mapping[str, Callable[[_Example], Tensor]] = MappingProxyType(
    {
        "occlusion": lambda example: occlusion(example.of_words, sum(example.lengths), 1),
        "occlusion-5": lambda example: occlusion(example.of_words, sum(example.lengths), 5),
        "gradient-x-input": lambda example: gradient_times_input(
            example.of_vectors, example.vectors()
        ),
        "integrated-gradients": lambda example: integrated_gradients(
            example.of_vectors, example.vectors()
        ),
        "lime": _lime,
    }
)
"""See `rss_rl.ops.attribution`; `occlusion-5` removes windows of five words."""

FOR_LABEL = "policy-for-label"
"""Name of `ForLabel` beside the METHODS."""
_DIRECTION, _WIDTH = 0.25, 2.0
"""Weight of its gradient, and words that this is smoothed over: chosen on dev of film reviews."""


class PosthocScores:
    """Scores by one of the METHODS.

    Args:
        method: a key of METHODS.
        classifier: must be in evaluation mode when called.
        seed: of the run, for methods that sample.

    Raises:
        ConfigError: no such method.
    """

    knows_labels = True

    def __init__(self, method: str, classifier: SentencesClassifier, seed: int) -> None:
        if method not in METHODS:
            known = [*METHODS, FOR_LABEL]
            raise ConfigError(
                f"there is no post-hoc method '{method}'{nearest(method, known)}",
                where="--posthoc",
                remedy=f"There are: {', '.join(known)}",
            )
        self._method, self._classifier, self._seed = METHODS[method], classifier, seed

    def __call__(self, batch: Batch, tensors: TensorBatch) -> list[Array]:
        """See `ScoreSource`."""
        found = [np.zeros(valid.shape) for valid in batch.valid]
        # bfloat16 is too coarse for the small differences between similar texts.
        exactly = torch.autocast(tensors.tokens[0].device.type, enabled=False)
        with torch.no_grad(), exactly:
            for index, row in enumerate(batch.rows.tolist()):
                real = [valid[index] for valid in tensors.valid]
                example = _Example(
                    self._classifier,
                    tuple(
                        ids[index, mask][None]
                        for ids, mask in zip(tensors.tokens, real, strict=True)
                    ),
                    int(batch.labels[index]),
                    self._seed,
                    row,
                )
                scores = torch.split(self._method(example).cpu(), example.lengths)
                for slot, part in enumerate(scores):
                    found[slot][index, batch.valid[slot][index]] = part.numpy()
        return found


class ForLabel:
    """The policy's ranking of the words, with those first that speak for the right class.

        z(logit_i) + z(slope_i) / 4,    z(x) = (x - mean) / standard deviation, in a sentence

    with the logit of keeping a word in either role, and gradient x input of the log-odds of the
    right class, smoothed over neighbouring words. A policy says which words matter, whichever
    class they speak for; people mark those for the right one.

    Raises:
        ConfigError: the classifier cannot be explained.
    """

    knows_labels = True

    def __init__(self, models: Models, seed: int) -> None:
        self._models = models
        self._slopes = PosthocScores("gradient-x-input", explained(models), seed)

    def __call__(self, batch: Batch, tensors: TensorBatch) -> list[Array]:
        """See `ScoreSource`."""
        inputs = self._models.policy_inputs(tensors.tokens, tensors.valid, tensors.states)
        found = []
        slopes = self._slopes(batch, tensors)
        for vectors, valid, slope in zip(inputs, tensors.valid, slopes, strict=True):
            chances = self._models.policy.probabilities(vectors, valid).amax(1)
            logits = torch.logit(chances.double(), eps=1e-6)
            given = torch.from_numpy(slope).to(valid.device) * valid
            smooth = bumps(given[:, None], torch.full_like(given, _WIDTH)[:, None], _WIDTH)[:, 0]
            scores = _standard(logits, valid) + _DIRECTION * _standard(smooth, valid)
            found.append(scores.cpu().numpy())
        return found


def _standard(values: Tensor, valid: Tensor) -> Tensor:
    """[B, N] less the mean of a sentence's tokens, in standard deviations; 0 if all are equal."""
    count = valid.sum(1, keepdim=True).clamp_min(1)
    centred = (values - (values * valid).sum(1, keepdim=True) / count) * valid
    deviation = (centred.square().sum(1, keepdim=True) / count).sqrt()
    return centred / deviation.clamp_min(1e-12)


def explained(models: Models) -> SentencesClassifier:
    """The classifier, if post-hoc methods can explain it.

    Raises:
        ConfigError: it reads passages.
    """
    if not isinstance(models.classifier, SentencesClassifier):
        raise ConfigError(
            "post-hoc methods explain only classifiers of one or two sentences",
            where="--posthoc",
        )
    return models.classifier


def posthoc_scores(method: str, models: Models, seed: int) -> ScoreSource:
    """Scores by one of the METHODS or `FOR_LABEL`.

    Raises:
        ConfigError: no such method, or the classifier cannot be explained.
    """
    if method == FOR_LABEL:
        return ForLabel(models, seed)
    return PosthocScores(method, explained(models), seed)
