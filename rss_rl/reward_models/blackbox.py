"""A black-box text classifier as reward model: which words does its prediction need?

    score = log p(y | the selected words), y the label or its prediction from the whole text

The classifier is frozen. A function is queried only for probabilities; a transformer also gives
gradients through gates on its attention. A policy trained on it explains it for a whole corpus: new
texts are then explained by one pass of the policy.

Legend: M scored selections, N tokens, C classes.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, Literal, Protocol

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from rss_rl.components import Component, Folder, Options
from rss_rl.errors import ComponentError, ConfigError
from rss_rl.models.inputs import TensorBatch
from rss_rl.ops.gated import union
from rss_rl.pretrained.folder import Pretrained, open_pretrained
from rss_rl.pretrained.reader import WordReader
from rss_rl.reward_models.protocol import RewardSetup
from rss_rl.types import Array, Batch

Probabilities = Callable[[list[str]], Any]
"""Texts to the probability of each class, [texts, C]."""
_LEAST = 1e-6
"""A function's probabilities are clipped to this, so that their logarithm is finite."""
_MOST_TEXTS = 64
_ANY_WORD = 1
"""The id of unknown words, which every vocabulary has."""
_PROBED = 32
"""Words of the text with which a transformer's attention is tried."""


class _TargetOptions(Options):
    target: Literal["label", "prediction"] = Field(
        default="prediction",
        description="The class to predict from the selected words: that of the data, or the one"
        " that the classifier predicts from the whole text.",
    )
    of_class: str | None = Field(
        default=None,
        description="A class to predict from the selected words of every text, in place of target:"
        " finds evidence for it, even if the classifier predicts another.",
    )


class BlackboxOptions(_TargetOptions):
    """Options of a text classifier."""

    pretrained: Folder = Field(
        description="Folder of an AutoModelForSequenceClassification with its tokenizer, or its"
        " name on the Hugging Face hub."
    )
    absent: Literal["remove", "mask"] = Field(
        default="remove",
        description="Words that are not selected: removed, or replaced by the mask token.",
    )


class FunctionOptions(_TargetOptions):
    """Options of a function from texts to probabilities."""

    absent: str | None = Field(
        default=None,
        description="Replacement for each word that is not selected; null: it is removed.",
    )


class _Classifier(Protocol):
    """A source of class probabilities."""

    @property
    def names(self) -> Sequence[str] | None:
        """Names of the classes, in its own order; None if a function names none."""

    def log_probs(self, words: Array, valid: Array, kept: Array) -> Array:
        """float [M, C] of the kept words; int64, bool and bool [M, N]."""

    def add_words(self, words: Sequence[str]) -> None:
        """Give words the next ids."""


class BlackboxReward:
    """See the module. `of_class` is the number of the class asked for, None without one.

    Args:
        classifier: to be explained.
        where: named in errors.

    Raises:
        ConfigError: the classifier lacks a class of the task.
    """

    def __init__(
        self, classifier: _Classifier, setup: RewardSetup, options: _TargetOptions, where: str
    ) -> None:
        self.classifier, self._where = classifier, where
        names, asked = setup.labels.names, options.of_class
        if asked is not None:
            names = (asked,) * len(names)  # one class, whatever the label
        by_label = options.target == "label" or asked is not None
        numbers = _classes(classifier.names, names, where) if by_label else None
        self._classes = numbers
        self.of_class = None if numbers is None or asked is None else int(numbers[0])

    def score(self, batch: Batch, selections: Sequence[Array]) -> dict[str, Array]:
        """`log_likelihood`, float32 [M] in nats; see `RewardModel.score`."""
        (words,), (valid,), (chosen,) = batch.tokens, batch.valid, selections
        log_probs = self.classifier.log_probs(words, valid, chosen.any(1) & valid)  # [M, C]
        if self._classes is not None and self._classes.max() >= log_probs.shape[1]:
            raise ComponentError(
                f"has {log_probs.shape[1]} classes, but the data have one numbered"
                f" {self._classes.max()}",
                where=self._where,
                remedy="Give the probability of every class",
            )
        picked: Array = log_probs[np.arange(len(log_probs)), self._target(batch)].astype(np.float32)
        return {"log_likelihood": picked}

    def _target(self, batch: Batch) -> Array:
        """Class of each example as the classifier numbers them, int64 [M]."""
        if self._classes is not None:
            found: Array = self._classes[batch.labels]
            return found
        # Examples are repeated for each selection; the whole text is read once.
        _, first, again = np.unique(batch.rows, return_index=True, return_inverse=True)
        words, valid = batch.tokens[0][first], batch.valid[0][first]
        whole: Array = self.classifier.log_probs(words, valid, valid).argmax(-1)[again]
        return whole


class TransformerClassifier:
    """A classifier from a pretrained folder."""

    def __init__(self, pretrained: Pretrained, setup: RewardSetup, absent: str) -> None:
        if absent == "mask" and pretrained.tokenizer.mask_token_id is None:
            raise ConfigError(
                "its tokenizer has no mask token", where=pretrained.name, remedy="Use absent=remove"
            )
        label_of = pretrained.config.id2label
        self.names = [str(label_of[number]) for number in sorted(label_of)]
        self._device, self._removes = torch.device(setup.device), absent == "remove"
        reader = WordReader(pretrained, pretrained.classifier(), _words(setup))
        self._reader = reader.eval().requires_grad_(False).to(self._device)
        self._gated: bool | None = None
        self._check_padding(pretrained.name)

    def log_probs(self, words: Array, valid: Array, kept: Array) -> Array:
        """See `_Classifier`."""
        read = kept if self._removes else valid
        text, _ = read.nonzero()
        ids, owner, shown = (
            torch.from_numpy(each).to(self._device) for each in (words[read], text, kept[read])
        )
        with torch.inference_mode():
            logits = self._reader.class_logits(ids, owner, len(words), shown)
            log_probs: Array = torch.log_softmax(logits, -1).cpu().numpy()
        return log_probs

    def add_words(self, words: Sequence[str]) -> None:
        """See `_Classifier`."""
        self._reader.table.add(words)

    def _check_padding(self, name: str) -> None:
        """Try a text alone and beside a longer one.

        Raises:
            ConfigError: its scores differ, as those of XLNet do, which reads the last piece, and of
                FNet, which mixes padding in; or it reads one text at a time.
        """
        words = np.zeros((2, 7), dtype=np.int64) + _ANY_WORD
        valid = np.arange(7) < np.array([[6], [7]])
        with torch.autocast(self._device.type, enabled=False):
            alone = self.log_probs(words[:1, :6], valid[:1, :6], valid[:1, :6])
            try:
                beside = self.log_probs(words, valid, valid)[:1]
            except ValueError as error:
                raise without_batches(name, error) from error
        if not np.allclose(alone, beside, atol=1e-4):
            raise ConfigError(
                "its scores of a text depend on the padding that longer texts need",
                where=name,
                remedy="Give a function from texts to probabilities that calls it",
            )

    def slopes(self, words: Array, classes: Array | None) -> tuple[Array, Array]:
        """What each word is worth to a class: the slope of its log-odds in the word's gate.

        Gates are 1, and weigh words in the upper two thirds of the layers only, see `WordReader`:
        slopes then cost less, and choose words of film reviews that suffice as well.

        Args:
            words: int64 [M, N], all of them real. classes: int64 [M]; None: the likeliest.

        Returns:
            Slopes, float64 [M, N], in nats, minus infinity for words beyond its maximum length; and
            the log-probabilities of the classes, [M, C].
        """
        ids = torch.from_numpy(words).to(self._device)
        gates = torch.ones(ids.shape, device=ids.device, requires_grad=True)
        log_probs = self.gated_log_probs(ids, ids >= 0, gates, upper=True).double()
        at = log_probs.argmax(1) if classes is None else torch.from_numpy(classes).to(ids.device)
        others = log_probs.scatter(1, at[:, None], -torch.inf).logsumexp(1)
        odds = log_probs.gather(1, at[:, None])[:, 0] - others
        (slopes,) = torch.autograd.grad(odds.sum(), gates)
        read = torch.stack([self._reader.reaches(text) for text in ids])
        found: Array = slopes.double().where(read, -torch.inf).cpu().numpy()
        return found, log_probs.detach().cpu().numpy()

    def takes_gates(self, words: Array) -> bool:
        """Whether its attention can weigh words by gates; the answer is remembered.

        It cannot if its predictions with all gates open are not those without gates. So it is with
        decoders, whose causal mask gates would replace.

        Args:
            words: int64 [N], of a text.
        """
        if self._gated is not None:
            return self._gated
        few = words[None, :_PROBED]
        whole = np.ones(few.shape, dtype=bool)
        with torch.autocast(self._device.type, enabled=False):
            try:
                _, gated = self.slopes(few, None)
            except Exception:  # whatever the library raises for a mask of another form
                found = False
            else:
                found = np.allclose(gated, self.log_probs(few, whole, whole), atol=1e-3)
        if not found or len(np.unique(few)) > 2:  # of fewer words a decoder may say the same
            self._gated = found
        return found

    def gated_log_probs(
        self, words: Tensor, valid: Tensor, gates: Tensor, *, upper: bool = False
    ) -> Tensor:
        """float [M, C] of words weighted by gates [M, N]; int64 and bool [M, N].

        Args:
            upper: see `WordReader.class_logits`.
        """
        read = valid & (gates > 0)
        text, _ = read.nonzero(as_tuple=True)
        logits = self._reader.class_logits(
            words[read], text, len(words), read[read], gates[read], upper=upper
        )
        return torch.log_softmax(logits, -1)


def without_batches(name: str, error: ValueError) -> ConfigError:
    """The error of a transformer that reads one text at a time: a decoder without padding."""
    return ConfigError(
        f"cannot read several texts at once ({error})",
        where=name,
        remedy="Set the pad_token of its tokenizer and pad_token_id in its config.json, or give a"
        " function that calls it",
    )


class GatedBlackboxReward(BlackboxReward):
    """The same for a transformer with absent=remove: a policy can learn through gates."""

    classifier: TransformerClassifier

    def gated_losses(self, batch: TensorBatch, gates: Sequence[Tensor]) -> Tensor:
        """Minus the log-likelihood, [K * B], of gates [K, B, 2, N]; see `GatedReward`.

        Raises:
            ConfigError: the attention of the classifier cannot weigh words.
        """
        (words,), (valid,), (gate,) = batch.tokens, batch.valid, gates
        if not self.classifier.takes_gates(words[0][valid[0]].cpu().numpy()):
            raise ConfigError(
                "the attention of this transformer cannot weigh words by gates",
                where=self._where,
                remedy="Use an estimator that learns from rewards: learner.estimator=reinforce",
            )
        samples = len(gate)
        joint = union(gate.flatten(0, 1))  # [K * B, N]
        log_probs = self.classifier.gated_log_probs(
            words.repeat(samples, 1), valid.repeat(samples, 1), joint
        )
        if self._classes is not None:
            target = torch.from_numpy(self._classes).to(words.device)[batch.labels]
        else:
            whole = self.classifier.gated_log_probs(words, valid, valid.to(gate.dtype))
            target = whole.detach().argmax(-1)
        return -log_probs.gather(1, target.repeat(samples)[:, None])[:, 0]


class _Function:
    """A function from texts to probabilities; texts are words joined by spaces."""

    def __init__(
        self, function: Probabilities, where: str, setup: RewardSetup, absent: str | None
    ) -> None:
        given = getattr(function, "classes", None)
        self.names = None if given is None else [str(name) for name in given]
        self._function, self._where, self._absent = function, where, absent
        self._words = np.array(_words(setup), dtype=object)

    def log_probs(self, words: Array, valid: Array, kept: Array) -> Array:
        """See `_Classifier`."""
        texts = [self._text(*row) for row in zip(words, valid, kept, strict=True)]
        starts = range(0, len(texts), _MOST_TEXTS)
        found = [ask(self._function, texts[i : i + _MOST_TEXTS], self._where) for i in starts]
        log_probs: Array = np.log(np.concatenate(found).clip(_LEAST))
        return log_probs

    def add_words(self, words: Sequence[str]) -> None:
        """See `_Classifier`."""
        self._words = np.concatenate([self._words, np.array(words, dtype=object)])

    def _text(self, words: Array, valid: Array, kept: Array) -> str:
        if self._absent is None:
            return " ".join(self._words[words[kept]])
        return " ".join(np.where(kept, self._words[words], self._absent)[valid])


def ask(function: Probabilities, texts: list[str], where: str) -> Array:
    """Class probabilities of some texts, float64 [texts, C].

    Raises:
        ComponentError: the function raises, or returns something else.
    """
    remedy = "Return the probability of each class for each text, [texts, classes]"
    try:
        found = np.asarray(function(texts), dtype=np.float64)
    except Exception as error:
        raise ComponentError(f"raises {error!r:.300}", where=where, remedy=remedy) from error
    names = getattr(function, "classes", None)
    good = found.ndim == 2 and found.shape[0] == len(texts) and found.shape[1] > 1
    if good and names is not None and len(names) != found.shape[1]:
        what = f"returns {found.shape[1]} probabilities, and its `classes` are {len(names)}"
        raise ComponentError(what, where=where, remedy=remedy)
    if not good or not (np.isfinite(found) & (found >= 0) & (found <= 1.001)).all():
        shape = f"of shape {found.shape} for {len(texts)} texts"
        raise ComponentError(f"returns no probabilities, {shape}", where=where, remedy=remedy)
    return found


def _words(setup: RewardSetup) -> Sequence[str]:
    if setup.sentences != 1 or setup.labels.kind != "classes" or setup.words is None:
        raise ConfigError(
            "a black box explains classes of single texts",
            where="reward.model",
            remedy="Use data with one text per example and class labels",
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
            f"has no class '{lacking[0]:.100}', which is asked for; its classes: "
            + ", ".join(theirs),
            where=where,
            remedy="Set id2label in its config.json (of a function, its attribute `classes`), or"
            " use reward.model.options.target=prediction, without of_class",
        )
    return np.array([numbers[name.lower()] for name in names], dtype=np.int64)


def _number(name: str) -> int:
    """The number of a class that is named by it; -1 for another name."""
    return int(name) if name.isascii() and name.isdecimal() else -1


def _build(setup: RewardSetup, options: BlackboxOptions) -> BlackboxReward:
    pretrained = open_pretrained(options.pretrained)
    classifier = TransformerClassifier(pretrained, setup, options.absent)
    kind = GatedBlackboxReward if options.absent == "remove" else BlackboxReward
    return kind(classifier, setup, options, pretrained.name)


def of_function(function: Probabilities, name: str) -> Component:
    """The component of a function from texts to probabilities, named `package.module:FUNCTION`.

    The function's attribute `classes` names the classes; without it they are 0, 1, ...
    """

    def build(setup: RewardSetup, options: FunctionOptions) -> BlackboxReward:
        classifier = _Function(function, name, setup, options.absent)
        return BlackboxReward(classifier, setup, options, name)

    help_ = (inspect.getdoc(function) or "").strip()
    help_ = help_ or "A function from texts to probabilities of classes."
    return Component(
        kind="reward_model",
        name=name.rpartition(":")[2],
        help=help_.splitlines()[0],
        build=build,
        options=FunctionOptions,
    )


BLACKBOX = Component(
    kind="reward_model",
    name="blackbox",
    help="A frozen pretrained text classifier: the policy learns which words it needs.",
    build=_build,
    options=BlackboxOptions,
    capabilities=frozenset({"explains", "gates"}),
    source="Chen et al., Learning to Explain, ICML 2018",
)
