"""Selected words put to the classifier that a run explains.

A policy learns from a corpus which words its classifier needs, and may miss those of a single text,
most of all where the classifier is in doubt itself. Where the classifier is not sure of its class
from the selected words alone, as many words are chosen by the slopes of its log-odds, with and
without the policy's scores, and the choice of which it is surest is kept.

Legend: B texts, N tokens, C classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from rss_rl.config import RewardConfig
from rss_rl.envs.rewards import Reward
from rss_rl.errors import ConfigError
from rss_rl.ops.rationale_overlap import top_share
from rss_rl.reward_models.blackbox import BlackboxReward, GatedBlackboxReward
from rss_rl.reward_models.protocol import RewardSetup
from rss_rl.types import Array, LabelSpec

_WEIGHTS = (0.0, 0.3, 1.0)
"""Of the policy's scores beside the slopes; both have a standard deviation of 1 in each text."""
_LEAST = 1e-6


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
        if isinstance(model, GatedBlackboxReward) and model.classifier.takes_gates:
            for row in doubted.tolist():  # one by one: the gradient of a long text takes memory
                own = slice(row, row + 1)
                (slopes,) = model.classifier.slopes(words[own], valid[own], classes[own])
                self._choose(row, words[row], valid[row], slopes, found)
        return found

    def _choose(self, row: int, words: Array, valid: Array, slopes: Array, found: Checked) -> None:
        """Replace the words of a row by those of which the classifier is surest."""
        odds = found.chances[row].clip(_LEAST, 1 - _LEAST).astype(np.float64)
        policy = _standard(np.log(odds / (1 - odds)), valid)
        scores = np.stack([_standard(slopes, valid) + part * policy for part in _WEIGHTS])
        many = len(scores)
        share = found.kept[row].sum() / valid.sum()
        kept = top_share(scores, np.repeat(valid[None], many, 0), float(share))
        log_probs = self._model.classifier.log_probs(
            np.repeat(words[None], many, 0), np.repeat(valid[None], many, 0), kept
        )
        shares = np.exp(log_probs)
        best = int(shares[:, found.classes[row]].argmax())
        if shares[best, found.classes[row]] > found.shares[row, found.classes[row]]:
            found.kept[row], found.shares[row] = kept[best], shares[best]
            least = scores[best][kept[best]].min()
            most = scores[best][valid & ~kept[best]].max(initial=least - 1.0)
            found.chances[row] = 1 / (1 + np.exp((least + most) / 2 - scores[best]))


def _standard(scores: Array, valid: Array) -> Array:
    """Scores less their mean, in standard deviations, of the words of a text; 0 on padding."""
    own = scores[valid]
    scaled: Array = np.where(valid, scores - own.mean(), 0.0) / max(float(own.std()), 1e-12)
    return scaled
