"""Contract tests for reward models; see `rss_rl.testing`.

Legend: M scored selections, S sentences per example.
"""

from __future__ import annotations

import copy
import pickle
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from rss_rl.components import Component
from rss_rl.config import ModelConfig
from rss_rl.errors import ComponentError
from rss_rl.models.build import build_classifier
from rss_rl.models.protocol import Classifier
from rss_rl.promises import Promises
from rss_rl.random_batches import WORDS, cut_batch, random_batch, random_selections
from rss_rl.reward_models.protocol import LogitsReward, RewardSetup, named_scores
from rss_rl.types import Array, Batch, LabelSpec

_CLASSES = LabelSpec("classes", ("no", "yes"))
_TOLERANCE = 1e-4
_EMBEDDING = 6


def check_reward_model(
    model: Any,
    *,
    labels: LabelSpec = _CLASSES,
    sentences: int = 1,
    options: Mapping[str, Any] | None = None,
) -> None:
    """Check all that a run relies on: one finite, reproducible number for each selection, the same
    alone and in a batch of any order; unchanged arguments; pickling. For one that scores with the
    classifier also that dropout is off, that the classifier's mode is restored, and that
    `score_logits` agrees with `score`.

    Args:
        model: a component of kind `reward_model`, an object with `score`, or a function.
        labels, sentences: of a task that it supports.
        options: of the component.

    Raises:
        ComponentError: the first broken promise, with a remedy.
        ConfigError: invalid options, or the component refuses the task.
    """
    classifier = None
    if isinstance(model, Component):
        parsed = model.parse(options or {})
        if model.can("classifier", parsed):
            classifier = _classifier(labels, sentences)
        words = tuple(f"w{number}" for number in range(WORDS))
        model = model.build(RewardSetup(labels, sentences, classifier, "cpu", words), parsed)
    checked = _Checked(model)
    for seed in range(2):
        batch = random_batch(labels, sentences, seed)
        selections = random_selections(batch, seed)
        _check_scores(checked, batch, selections)
        if classifier is not None:
            checked.require(
                classifier.training, "leaves the classifier in evaluation mode", "Restore its mode"
            )
            _check_logits(checked, classifier, batch, selections)


def _classifier(labels: LabelSpec, sentences: int) -> Classifier:
    """A small random one, in training mode and with dropout."""
    vectors = np.random.default_rng(0).normal(size=(WORDS, _EMBEDDING)).astype(np.float32)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        config = ModelConfig(hidden=4, dropout=0.5)
        return build_classifier(config, labels, sentences, vectors, WORDS).train()


class _Checked(Promises):
    """A reward model under test, with the checks."""

    def __init__(self, model: Any) -> None:
        name = getattr(model, "__name__", type(model).__name__)
        super().__init__(ComponentError, name, "the reward model")
        self.model = model

    def score(self, batch: Batch, selections: tuple[Array, ...]) -> dict[str, Array]:
        """Its terms; checked for shape, finiteness and unchanged arguments."""
        score = getattr(self.model, "score", self.model)
        self.require(callable(score), "has no `score`", "Give it score(batch, selections)")
        before = copy.deepcopy((batch, selections))
        terms = named_scores(score(batch, selections), len(batch), self.model)
        self.require(
            pickle.dumps(before) == pickle.dumps(copy.deepcopy((batch, selections))),
            "changes its arguments",
            "Work on a copy",
        )
        for name, values in terms.items():
            self.require(
                bool(np.isfinite(values).all()),
                f"returned a '{name}' that is not finite",
                "An empty selection has a finite score, too",
            )
        return terms

    def same(
        self, one: Mapping[str, Array], other: Mapping[str, Array], what: str, to: str
    ) -> None:
        """Raise unless the terms are equal, up to rounding."""
        self.require(list(one) == list(other), "names other terms from call to call", "Return all")
        equal = all(np.allclose(one[n], other[n], atol=_TOLERANCE) for n in one)
        self.require(equal, what, to)


def _check_scores(checked: _Checked, batch: Batch, selections: tuple[Array, ...]) -> None:
    whole = checked.score(batch, selections)
    again = checked.score(batch, selections)
    equal = list(whole) == list(again) and all(
        np.array_equal(whole[name], again[name]) for name in whole
    )
    checked.require(
        equal,
        "scores equal selections differently from call to call",
        "Draw nothing, and run networks in evaluation mode, without dropout",
    )
    for index in range(len(batch)):
        alone = checked.score(*cut_batch(batch, selections, np.array([index])))
        checked.same(
            alone,
            {name: values[index : index + 1] for name, values in whole.items()},
            "scores a selection differently alone and in a padded batch",
            "Use only real tokens, and score each example by itself",
        )
    back = np.arange(len(batch))[::-1]
    checked.same(
        checked.score(batch.take(back), tuple(s[back] for s in selections)),
        {name: values[back] for name, values in whole.items()},
        "scores depend on the order of the batch",
        "Score each example by itself",
    )
    twice = tuple(
        np.concatenate([s, s[back] & v[:, None]])
        for s, v in zip(selections, batch.valid, strict=True)
    )
    checked.same(
        {n: v[: len(batch)] for n, v in checked.score(batch.repeat(2), twice).items()},
        whole,
        "scores depend on other selections of the same examples",
        "Entry k * B + b of a batch is the k-th selection of example b",
    )
    checked.same(
        _Checked(checked.pickled(checked.model)).score(batch, selections),
        whole,
        "scores differently after pickling",
        "Keep what it needs in attributes",
    )


def _check_logits(
    checked: _Checked, classifier: Classifier, batch: Batch, selections: tuple[Array, ...]
) -> None:
    """A model that needs only logits scores them like the selection."""
    if not isinstance(checked.model, LogitsReward):
        return
    tokens, valid = (
        [torch.from_numpy(a) for a in arrays] for arrays in (batch.tokens, batch.valid)
    )
    marks = None if batch.marks is None else torch.from_numpy(batch.marks)
    chosen = [torch.from_numpy(selection) for selection in selections]
    classifier.eval()
    try:
        with torch.inference_mode():
            logits = classifier(tokens, valid, chosen, marks)
    finally:
        classifier.train()
    checked.same(
        named_scores(checked.model.score_logits(logits, batch.labels), len(batch), checked.model),
        checked.score(batch, selections),
        "scores the classifier's logits differently from the selection",
        "Leave out score_logits if the score needs more than the logits",
    )
