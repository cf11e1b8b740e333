"""A black-box text classifier as reward model: which words does its prediction need?

    score = log p(y | the selected words), y the label or its prediction from the whole text

The classifier is frozen. A function is queried only for probabilities; a transformer also gives
gradients through gates on its attention. A policy trained on it explains it for a whole corpus: new
texts are then explained by one pass of the policy.

Legend: M scored selections, S texts per example (1 or 2), N tokens, C classes.
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, Literal, Protocol

import numpy as np
import torch
from torch import Tensor

from rss_rl.components import Component, NoOptions, Options
from rss_rl.errors import ComponentError, ConfigError
from rss_rl.models.inputs import TensorBatch, to_tensors
from rss_rl.ops.gated import union
from rss_rl.pretrained.folder import Pretrained, open_pretrained
from rss_rl.pretrained.reader import WordReader
from rss_rl.reward_models.reward_model import RewardSetup
from rss_rl.types import Array, Batch

Probabilities = Callable[[list[Any]], Any]
"""Texts, or pairs of texts, to the probability of each class, [texts, C]."""
_LEAST = 1e-6
"""A function's probabilities are clipped to this, so that their logarithm is finite."""
_MOST_TEXTS = 64
_ANY_WORD = 1
"""The id of unknown words, which every vocabulary has."""
_PROBED = 32
"""Words of the vocabulary with which a transformer's attention is tried."""
_CLOSE = 1e-3
"""Largest difference between log-probabilities that are taken for equal."""
_OTHER_WAY = "Give a function from texts to probabilities that calls it"


class TargetOptions(Options):
    """Options of any classifier."""

    target: Literal["label", "prediction"] = "prediction"
    """The class to predict from the selected words: that of the data, or the one that the
    classifier predicts from the whole text.
    """


class BlackboxOptions(TargetOptions):
    """Options of a text classifier."""

    pretrained: str
    """Folder of an AutoModelForSequenceClassification with its tokenizer, or its name on the
    Hugging Face hub.
    """


class _Classifier(Protocol):
    """A source of class probabilities."""

    @property
    def names(self) -> Sequence[str] | None:
        """Names of the classes, in its own order; None if a function names none."""

    def log_probs(self, words: Sequence[Array], kept: Sequence[Array]) -> Array:
        """float [M, C] of the kept words; S x int64 and bool [M, N]."""


class BlackboxReward:
    """See the module.

    Args:
        classifier: to be explained.
        where: named in errors.

    Raises:
        ConfigError: the classifier lacks a class of the task.
    """

    def __init__(
        self, classifier: _Classifier, setup: RewardSetup, options: TargetOptions, where: str
    ) -> None:
        self._classifier, self._where = classifier, where
        by_label = options.target == "label"
        self._classes = _classes(classifier.names, setup.labels.names, where) if by_label else None
        self._answers: dict[bytes, int] = {}

    def score(self, batch: Batch, selections: Sequence[Array]) -> dict[str, Array]:
        """`log_likelihood`, float32 [M] in nats; see `RewardModel.score`."""
        kept = [s.any(1) & real for s, real in zip(selections, batch.valid, strict=True)]
        log_probs = self._classifier.log_probs(batch.tokens, kept)  # [M, C]
        if self._classes is not None and self._classes.max() >= log_probs.shape[1]:
            raise ComponentError(
                f"has {log_probs.shape[1]} classes, but the data have one numbered"
                f" {self._classes.max()}",
                where=self._where,
                remedy="Give the probability of every class",
            )
        target = self._target(batch.tokens, batch.valid, batch.labels)
        return {"log_likelihood": log_probs[np.arange(len(target)), target].astype(np.float32)}

    def _target(self, words: Sequence[Array], valid: Sequence[Array], labels: Array) -> Array:
        """Class of each example as the classifier numbers them, int64 [M].

        About the whole of a text the classifier is asked once.
        """
        if self._classes is not None:
            classes: Array = self._classes[labels]
            return classes
        keys = [_digest(words, valid, row) for row in range(len(labels))]
        new = {key: row for row, key in enumerate(keys) if key not in self._answers}
        if new:
            rows = list(new.values())
            every = [each[rows] for each in valid]
            answers = self._classifier.log_probs([w[rows] for w in words], every).argmax(-1)
            self._answers |= dict(zip(new, answers.tolist(), strict=True))
        return np.array([self._answers[key] for key in keys], dtype=np.int64)


def _digest(words: Sequence[Array], valid: Sequence[Array], row: int) -> bytes:
    """A key for the texts of an example."""
    texts = (each[row, real[row]] for each, real in zip(words, valid, strict=True))
    joined = b"|".join(text.astype(np.int64).tobytes() for text in texts)
    return hashlib.blake2b(joined, digest_size=16).digest()


class TransformerClassifier:
    """A classifier from a pretrained folder.

    Raises:
        ConfigError: it classifies no texts, or not several at once.
    """

    def __init__(self, pretrained: Pretrained, setup: RewardSetup) -> None:
        label_of = pretrained.config.id2label
        self.names = [str(label_of[number]) for number in sorted(label_of)]
        self._device = torch.device(setup.device)
        words = _words(setup)
        self._known, self._texts = len(words), setup.sentences
        reader = WordReader(pretrained, pretrained.classifier(), words, texts=self._texts)
        self._reader = reader.eval().requires_grad_(False).to(self._device)
        self._check_padding(pretrained.name)

    def log_probs(self, words: Sequence[Array], kept: Sequence[Array]) -> Array:
        """See `_Classifier`."""
        ids, read = (to_tensors(part, self._device) for part in (words, kept))
        with torch.inference_mode():
            logits = self._reader.class_logits(ids, read)
            log_probs: Array = torch.log_softmax(logits, -1).cpu().numpy()
        return log_probs

    def gated_log_probs(
        self, words: Sequence[Tensor], valid: Sequence[Tensor], gates: Sequence[Tensor]
    ) -> Tensor:
        """float [M, C] of words weighted by gates; S x int64, bool and float [M, N]."""
        read = [real & (gate > 0) for real, gate in zip(valid, gates, strict=True)]
        return torch.log_softmax(self._reader.class_logits(words, read, gates), -1)

    @cached_property
    def takes_gates(self) -> bool:
        """Whether its attention can weigh words by gates.

        It cannot if its predictions with all gates open are not those without gates. So it is with
        decoders, whose causal mask gates would replace.
        """
        words = torch.arange(1, min(_PROBED, self._known), device=self._device)[None]
        tokens, real = [words] * self._texts, [words > 0] * self._texts
        with torch.inference_mode(), torch.autocast(self._device.type, enabled=False):
            plain = torch.log_softmax(self._reader.class_logits(tokens, real), -1)
            try:
                gated = self.gated_log_probs(tokens, real, [each.float() for each in real])
            except Exception:  # whatever the library raises for a mask of another form
                return False
        return torch.allclose(gated, plain, atol=_CLOSE)

    def _check_padding(self, name: str) -> None:
        """Try a text alone and beside a longer one.

        Raises:
            ConfigError: its scores differ, as those of XLNet do, which reads the last piece, and of
                FNet, which mixes padding in; or it reads one text at a time.
        """
        words = [np.full((2, 7), _ANY_WORD, dtype=np.int64)] * self._texts
        valid = [np.arange(7) < np.array([[6], [7]])] * self._texts
        short, real = ([each[:1, :6] for each in part] for part in (words, valid))
        with torch.autocast(self._device.type, enabled=False):
            alone = self.log_probs(short, real)
            try:
                beside = self.log_probs(words, valid)[:1]
            except ValueError as error:
                raise ConfigError(
                    f"cannot read several texts at once ({error})",
                    where=name,
                    remedy="Set the pad_token of its tokenizer and pad_token_id in its config.json."
                    f" Or: {_OTHER_WAY[0].lower()}{_OTHER_WAY[1:]}",
                ) from error
        if not np.allclose(alone, beside, atol=1e-4):
            raise ConfigError(
                "its scores of a text depend on the padding that longer texts need",
                where=name,
                remedy=_OTHER_WAY,
            )


class GatedBlackboxReward(BlackboxReward):
    """The same for a transformer: a policy can learn through gates."""

    _classifier: TransformerClassifier

    def gated_scores(self, batch: TensorBatch, gates: Sequence[Tensor]) -> dict[str, Tensor]:
        """`log_likelihood`, [K * B], of gates S x [K, B, 2, N]; see `GatedReward`.

        Raises:
            ConfigError: the attention of the classifier cannot weigh words.
        """
        words, valid = batch.tokens, batch.valid
        if not self._classifier.takes_gates:
            raise ConfigError(
                "the attention of this transformer cannot weigh words by gates",
                where=self._where,
                remedy="Use one that learns from rewards: learner.policy_update=reinforce",
            )
        samples = len(gates[0])
        log_probs = self._classifier.gated_log_probs(
            [each.repeat(samples, 1) for each in words],
            [each.repeat(samples, 1) for each in valid],
            [union(gate.flatten(0, 1)) for gate in gates],
        )
        texts, real = ([each.cpu().numpy() for each in part] for part in (words, valid))
        target = torch.from_numpy(self._target(texts, real, batch.labels.cpu().numpy()))
        chosen = target.to(log_probs.device).repeat(samples)[:, None]
        return {"log_likelihood": log_probs.gather(1, chosen)[:, 0]}


class _Function:
    """A function from texts to probabilities; texts are words joined by spaces."""

    def __init__(self, function: Probabilities, where: str, setup: RewardSetup) -> None:
        classes = getattr(function, "classes", None)
        self.names = None if classes is None else [str(name) for name in classes]
        self._function, self._where = function, where
        self._words = np.array(_words(setup), dtype=object)

    def log_probs(self, words: Sequence[Array], kept: Sequence[Array]) -> Array:
        """See `_Classifier`."""
        slots = [
            [" ".join(self._words[ids[bits]]) for ids, bits in zip(*slot, strict=True)]
            for slot in zip(words, kept, strict=True)
        ]
        texts = slots[0] if len(slots) == 1 else list(zip(*slots, strict=True))
        starts = range(0, len(texts), _MOST_TEXTS)
        probs = [self._ask(texts[start : start + _MOST_TEXTS]) for start in starts]
        log_probs: Array = np.log(np.concatenate(probs).clip(_LEAST))
        return log_probs

    def _ask(self, texts: list[Any]) -> Array:
        """Class probabilities of some texts, float64 [texts, C].

        Raises:
            ComponentError: the function raises, or returns something else.
        """
        remedy = "Return the probability of each class for each text, [texts, classes]"
        try:
            probs = np.asarray(self._function(texts), dtype=np.float64)
        except Exception as error:
            what = f"raises {error!r:.300}"
            raise ComponentError(what, where=self._where, remedy=remedy) from error
        good = probs.ndim == 2 and probs.shape[0] == len(texts) and probs.shape[1] > 1
        if good and self.names is not None and len(self.names) != probs.shape[1]:
            what = f"returns {probs.shape[1]} probabilities, and its `classes` are"
            raise ComponentError(f"{what} {len(self.names)}", where=self._where, remedy=remedy)
        if not good or not (np.isfinite(probs) & (probs >= 0) & (probs <= 1 + _CLOSE)).all():
            what = f"returns no probabilities, of shape {probs.shape} for {len(texts)} texts"
            raise ComponentError(what, where=self._where, remedy=remedy)
        return probs


def _words(setup: RewardSetup) -> Sequence[str]:
    if setup.labels.kind != "classes" or setup.words is None:
        raise ConfigError(
            "a black box explains classes of texts or of pairs of texts",
            where="reward.model",
            remedy="Use data with class labels",
        )
    return setup.words


def _classes(theirs: Sequence[str] | None, names: Sequence[str], where: str) -> Array:
    """The classifier's number for each class of the data, int64 [classes].

    Raises:
        ConfigError: it has no class of that name.
    """
    if theirs is None:  # a function that names no classes: they are numbers
        theirs = [str(number) for number in range(1 + max(map(_number, names)))]
    numbers = {name.lower(): number for number, name in enumerate(theirs)}
    lacking = [name for name in names if name.lower() not in numbers]
    if lacking:
        raise ConfigError(
            f"has no class '{lacking[0]:.100}', which the data have; its classes: "
            + ", ".join(theirs),
            where=where,
            remedy="Set id2label in its config.json (of a function, its attribute `classes`), or"
            " use reward.model.options.target=prediction",
        )
    return np.array([numbers[name.lower()] for name in names], dtype=np.int64)


def _number(name: str) -> int:
    """The number of a class that is named by it; -1 for another name."""
    return int(name) if name.isascii() and name.isdecimal() else -1


def _build(setup: RewardSetup, options: BlackboxOptions) -> BlackboxReward:
    pretrained = open_pretrained(options.pretrained)
    classifier = TransformerClassifier(pretrained, setup)
    return GatedBlackboxReward(classifier, setup, options, pretrained.name)


def of_function(function: Probabilities, name: str) -> Component:
    """The component of a function `package.module:FUNCTION`.

    One of two arguments, `score(batch, selections)`, is a reward model itself. One of texts returns
    probabilities; its attribute `classes` names the classes, which are 0, 1, ... without it.
    """
    help_ = (inspect.getdoc(function) or "").strip().partition("\n")[0]

    scores = len(inspect.signature(function).parameters) > 1

    def build(setup: RewardSetup, options: Any) -> Any:
        if scores:
            return function
        return BlackboxReward(_Function(function, name, setup), setup, options, name)

    what = "that scores selections" if scores else "from texts to probabilities of classes"
    return Component(
        kind="reward_model",
        name=name.rpartition(":")[2],
        help=help_ or f"A function {what}.",
        build=build,
        options=NoOptions if scores else TargetOptions,
    )


BLACKBOX = Component(
    kind="reward_model",
    name="blackbox",
    help="A frozen pretrained text classifier: the policy learns which words it needs.",
    build=_build,
    options=BlackboxOptions,
    capabilities=frozenset({"gates"}),
    source="Chen et al., Learning to Explain, ICML 2018",
)
