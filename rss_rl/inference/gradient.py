"""The words that a text classifier needs, by its gradient: nothing is trained.

A word is worth the slope of the log-odds of the class in the word's gate, which weighs it in the
attention of the upper half of the layers. A text costs a forward pass and a backward pass of that
half, and a forward pass over the words that are kept.

Legend: N tokens of a text, C classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from rss_rl.data.sources import Text
from rss_rl.data.tokens import Tokenizer
from rss_rl.data.vocabulary import SPECIAL_WORDS
from rss_rl.errors import ConfigError, DataError
from rss_rl.inference.explanation import Explanation, MarkedSentence
from rss_rl.ops.rationale_overlap import top_share
from rss_rl.pretrained.folder import open_pretrained
from rss_rl.reward_models.blackbox import TransformerClassifier
from rss_rl.reward_models.protocol import RewardSetup
from rss_rl.types import ROLES, Array, LabelSpec

_UNTRAINED = "Train a policy for it by `rss-rl explain-classifier`"


class GradientExplainer:
    """See `rss_rl.explain`; opened once for many texts.

    Args:
        classifier: folder of an AutoModelForSequenceClassification with its tokenizer, or its name
            on the Hugging Face hub.

    Raises:
        ConfigError: it is no text classifier, or its attention cannot weigh words.
    """

    def __init__(self, classifier: str | Path) -> None:
        pretrained = open_pretrained(str(classifier))
        setup = RewardSetup(LabelSpec("classes", ()), 1, words=SPECIAL_WORDS)
        self._classifier = TransformerClassifier(pretrained, setup, "remove")
        if not self._classifier.takes_gates:
            raise ConfigError(
                f"the attention of {pretrained.config.model_type} cannot weigh words",
                where=pretrained.name,
                remedy=_UNTRAINED,
            )
        self._name = pretrained.name
        self._tokenizer = Tokenizer(lower=False)
        self._ids: dict[str, int] = {}

    @property
    def classes(self) -> Sequence[str]:
        """Their names."""
        return self._classifier.names

    def __call__(
        self, texts: Sequence[Text], keep: float, of_class: str | None = None
    ) -> list[Explanation]:
        """See `rss_rl.explain`."""
        if isinstance(texts, str):
            raise DataError("got one text, expected a list of them", remedy='["A text."]')
        asked = None
        if of_class is not None:
            if of_class not in self.classes:
                raise ConfigError(
                    f"has no class '{of_class:.100}'; its classes: {', '.join(self.classes)}",
                    where=self._name,
                    remedy="Name one of them",
                )
            asked = np.array([self.classes.index(of_class)])
        return [self._explained(text, n, keep, asked) for n, text in enumerate(texts, start=1)]

    def _explained(self, text: Text, number: int, keep: float, asked: Array | None) -> Explanation:
        words, _ = self._tokenizer(text)
        if not words:
            raise DataError("has no words", where=f"text {number}", remedy="Give at least one word")
        new = sorted(set(words) - self._ids.keys())
        self._classifier.add_words(new)
        first = len(SPECIAL_WORDS) + len(self._ids)
        self._ids |= {word: first + place for place, word in enumerate(new)}
        ids = np.array([[self._ids[word] for word in words]])
        (slopes,), (whole,) = self._classifier.slopes(ids, asked)
        kept, chances = most_worth(slopes, keep)
        (alone,) = self._classifier.log_probs(ids, np.ones_like(kept)[None], kept[None])
        number = int(whole.argmax() if asked is None else asked[0])
        sentence = MarkedSentence(
            tuple(words),
            np.ones(len(words), dtype=bool),
            np.repeat(kept[None], ROLES, 0),
            np.repeat(chances[None], ROLES, 0),
            text if isinstance(text, str) else None,
        )
        shares = dict(zip(self.classes, np.exp(alone).tolist(), strict=True))
        return Explanation((sentence,), self.classes[number], shares)


def most_worth(slopes: Array, share: float) -> tuple[Array, Array]:
    """The words of the largest slopes, bool [N], and numbers that rank all of them as these do.

    Args:
        slopes: [N]. share: of the words that are kept, at least one.

    Returns:
        The second, float32 [N], is above one half for the words kept, and below for the others.
    """
    (kept,) = top_share(slopes[None], np.ones((1, len(slopes)), dtype=bool), share)
    scaled = slopes / max(float(slopes.std()), 1e-12)
    least = scaled[kept].min()
    middle = (least + scaled[~kept].max(initial=least - 1.0)) / 2
    return kept, (1 / (1 + np.exp(middle - scaled))).astype(np.float32)
