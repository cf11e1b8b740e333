"""The words that a text classifier needs, by its gradient: nothing is trained.

A word is worth the slope of the log-odds of the class in the word's gate, which weighs it in the
attention of the upper two thirds of the layers. A text costs a forward pass and a backward pass of
these, and a forward pass over the words that are kept.

Legend: N tokens of a text, C classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from rss_rl.data.sources import Text, checked_text
from rss_rl.data.tokens import Tokenizer
from rss_rl.data.vocabulary import SPECIAL_WORDS
from rss_rl.errors import ConfigError, DataError
from rss_rl.inference.explanation import Explanation, MarkedSentence
from rss_rl.ops.rationale_overlap import top_share
from rss_rl.pretrained.folder import open_pretrained
from rss_rl.reward_models.blackbox import TransformerClassifier
from rss_rl.reward_models.protocol import RewardSetup
from rss_rl.types import ROLES, Array, LabelSpec

_UNTRAINED = (
    "Train a policy for it that learns from its probabilities alone: `rss-rl explain-classifier`"
    " with learner.estimator=reinforce"
)


class GradientExplainer:
    """See `rss_rl.mark_words`; opened once for many texts.

    Args:
        classifier: folder of an AutoModelForSequenceClassification with its tokenizer, or its name
            on the Hugging Face hub.

    Raises:
        ConfigError: it is not a text classifier.
    """

    def __init__(self, classifier: str | Path) -> None:
        pretrained = open_pretrained(str(classifier))
        setup = RewardSetup(LabelSpec("classes", ()), 1, words=SPECIAL_WORDS)
        self._classifier = TransformerClassifier(pretrained, setup, "remove")
        self._name, self._kind = pretrained.name, pretrained.config.model_type
        self._tokenizer = Tokenizer(lower=False)
        self._ids: dict[str, int] = {}

    @property
    def classes(self) -> Sequence[str]:
        """Their names."""
        return self._classifier.names

    def __call__(
        self, texts: Sequence[Text], keep: float, of_class: str | None = None
    ) -> list[Explanation]:
        """See `rss_rl.mark_words`."""
        if isinstance(texts, str | dict):
            raise DataError(
                f"got a {type(texts).__name__}, expected a list of texts", remedy='["A text."]'
            )
        asked = None
        if of_class is not None:
            if of_class not in self.classes:
                raise ConfigError(
                    f"has no class '{of_class:.100}'; its classes: {', '.join(self.classes)}",
                    where=self._name,
                    remedy="Name one of them",
                )
            asked = np.array([self.classes.index(of_class)])
        checked = [checked_text(text, f"text {n}") for n, text in enumerate(texts, start=1)]
        return [self._marked(text, n, keep, asked) for n, text in enumerate(checked, start=1)]

    def _marked(self, text: Text, number: int, keep: float, asked: Array | None) -> Explanation:
        words, _ = self._tokenizer(text)
        if not words:
            raise DataError("has no words", where=f"text {number}", remedy="Give at least one word")
        new = sorted(set(words) - self._ids.keys())
        self._classifier.add_words(new)
        first = len(SPECIAL_WORDS) + len(self._ids)
        self._ids |= {word: first + place for place, word in enumerate(new)}
        ids = np.array([[self._ids[word] for word in words]])
        if not self._classifier.takes_gates(ids[0]):
            raise ConfigError(
                f"the attention of {self._kind} cannot weigh words",
                where=self._name,
                remedy=_UNTRAINED,
            )
        (slopes,), (whole,) = self._classifier.slopes(ids, asked)
        kept, chances = highest_slopes(slopes, keep)
        (alone,) = self._classifier.log_probs(ids, np.ones_like(kept)[None], kept[None])
        predicted = int(whole.argmax() if asked is None else asked[0])
        sentence = MarkedSentence(
            tuple(words),
            np.ones(len(words), dtype=bool),
            np.repeat(kept[None], ROLES, 0),
            np.repeat(chances[None], ROLES, 0),
            text if isinstance(text, str) else None,
        )
        shares = dict(zip(self.classes, np.exp(alone).tolist(), strict=True))
        return Explanation((sentence,), self.classes[predicted], shares)


def highest_slopes(slopes: Array, share: float) -> tuple[Array, Array]:
    """The words of the highest slopes, bool [N], and numbers that rank all of them as these do.

    Args:
        slopes: [N]; minus infinity for words that are not read, which are never kept.
        share: of the words read that are kept, at least one.

    Returns:
        The second, float32 [N], is above one half for the words kept, and below for the others.
    """
    read = np.isfinite(slopes)
    (kept,) = top_share(slopes[None], read[None], share)
    scaled = slopes / max(float(slopes[read].std()), 1e-12)
    least = scaled[kept].min()
    most = scaled[read & ~kept].max(initial=least - 1.0)
    with np.errstate(over="ignore"):
        chances = 1 / (1 + np.exp((least + most) / 2 - scaled))
    return kept, chances.astype(np.float32)
