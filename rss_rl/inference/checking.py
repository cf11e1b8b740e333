"""Selected words put to the classifier that a run explains.

A policy learns from a corpus which words its classifier needs, and may miss those of a single text,
most of all where the classifier is in doubt itself. Where the classifier is not sure of its class
from the selected words alone, as many words are chosen by its gradient, and kept if it is surer
from these.

Legend: B texts, N tokens, C classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from rss_rl.config import RewardConfig
from rss_rl.envs.rewards import Reward
from rss_rl.errors import ConfigError
from rss_rl.inference.gradient import highest_slopes
from rss_rl.reward_models.blackbox import (
    BlackboxReward,
    GatedBlackboxReward,
    TransformerClassifier,
)
from rss_rl.reward_models.protocol import RewardSetup
from rss_rl.types import Array, LabelSpec


class Checked(NamedTuple):
    """Words of B texts that the classifier has read.

    kept     bool [B, N]
    chances  float [B, N] in [0, 1], which rank the words; if chosen anew, those on the kept side
             of one half
    classes  int64 [B], predicted from the whole text, or the one that the run asks for
    shares   float64 [B, C], the probability of each class from the kept words alone
    names    of the C classes
    """

    kept: Array
    chances: Array
    classes: Array
    shares: Array
    names: Sequence[str]


class Checker:
    """See the module.

    Args:
        config: of a run whose reward model explains a classifier.
        words: of the token ids.

    Raises:
        ConfigError: another reward model.
    """

    def __init__(self, config: RewardConfig, labels: LabelSpec, words: Sequence[str]) -> None:
        model = None
        if not config.model.can("classifier"):
            model = Reward.build(config, RewardSetup(labels, 1, words=words)).model
        if not isinstance(model, BlackboxReward):
            raise ConfigError(
                "the run explains no classifier that could check its words",
                where="reward.model",
                remedy="Name a run of `rss-rl explain-classifier`",
            )
        self._model = model

    def add_words(self, words: Sequence[str]) -> None:
        """Add words, with the ids after the existing ones."""
        self._model.classifier.add_words(words)

    def __call__(
        self, words: Array, valid: Array, kept: Array, chances: Array, sure: float
    ) -> Checked:
        """Check the kept words, and choose others where they do not suffice.

        Args:
            words: int64 [B, N]. valid, kept: bool [B, N].
            chances: float [B, N] in [0, 1], by which the policy ranks the words.
            sure: the least probability of the class at which the words are left as they are.
        """
        ask = self._model.classifier.log_probs
        asked = self._model.of_class
        if asked is None:
            classes = ask(words, valid, valid).argmax(-1)
        else:
            classes = np.full(len(words), asked)
        shares = np.exp(ask(words, valid, kept).astype(np.float64))
        names = self._model.classifier.names or [str(number) for number in range(shares.shape[1])]
        found = Checked(kept.copy(), chances.copy(), classes, shares, names)
        doubted = np.flatnonzero(found.shares[np.arange(len(words)), classes] < sure)
        model = self._model
        if isinstance(model, GatedBlackboxReward):
            for row in doubted.tolist():
                own = words[row, valid[row]]
                if model.classifier.takes_gates(own):
                    _choose(model.classifier, row, own, found)
        return found


def _choose(classifier: TransformerClassifier, row: int, words: Array, found: Checked) -> None:
    """Replace the words of a row by as many others if the classifier is surer from these.

    Args:
        words: int64 [n], of its text.
    """
    count, asked = len(words), found.classes[row]  # real tokens come first
    (slopes,), _ = classifier.slopes(words[None], found.classes[row : row + 1])
    share = found.kept[row].sum() / max(1, np.isfinite(slopes).sum())
    kept, chances = highest_slopes(slopes, min(1.0, float(share)))
    (log_probs,) = classifier.log_probs(words[None], np.ones_like(kept)[None], kept[None])
    if np.exp(log_probs[asked]) > found.shares[row, asked]:
        found.kept[row, :count], found.chances[row, :count] = kept, chances
        found.shares[row] = np.exp(log_probs)
