"""A heuristic that drops function words and punctuation.

Legend: B sentences, N tokens.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from pydantic import Field
from torch import Tensor, nn

from rss_rl.components import Component, Options
from rss_rl.errors import ConfigError
from rss_rl.policies.protocol import PolicySetup

_GROUPS = (
    # articles, determiners, quantity words that name nothing
    "a an the this that these those each every some any such own same other another either both",
    # pronouns
    "i me my mine myself you your yours yourself he him his himself she her hers herself it its",
    "itself we us our ours ourselves they them their theirs themselves who whom whose which what",
    "all one ones somebody someone something anybody anyone anything everybody everyone everything",
    # forms of be, have and do, and the modal verbs
    "am is are was were be been being have has had having do does did doing done can could shall",
    "should will would may might must ought 's 'm 're 've 'd 'll",
    # prepositions
    "of in on at by for from to into onto with within about against between among through during",
    "before after above below over under up down out off upon across along around behind beside",
    "besides beyond near since until till toward towards via per as like than",
    # conjunctions and the adverbs that join sentences or only point
    "and or so if because while although though when where whether why how then there here also",
    "just very too quite rather again further once now ever",
)
FUNCTION_WORDS = frozenset(word for group in _GROUPS for word in group.split())
"""English function words. Negations (no, not, never, n't, without, but) are not among them."""


class StopWordsPolicy(nn.Module):
    """Keeps, in both roles, all but function words and tokens without a letter or digit.

    Out-of-vocabulary words are kept.

    Args:
        words: dropped in place of `FUNCTION_WORDS`; case is ignored.

    Raises:
        ConfigError: there is no vocabulary to look words up in.
    """

    reads_tokens = True
    left_out: Tensor

    def __init__(self, setup: PolicySetup, words: Sequence[str] | None = None) -> None:
        super().__init__()
        if not setup.words:
            raise ConfigError(
                "the stop-word policy needs the words of the token ids",
                where="policy.name",
                remedy="Use it with prepared data, or build it with PolicySetup.words",
            )
        stop = FUNCTION_WORDS if words is None else frozenset(word.lower() for word in words)
        ids = [
            number
            for number, word in enumerate(setup.words)
            if word.lower() in stop or not any(c.isalnum() for c in word)
        ]
        # Derived from the vocabulary: a checkpoint need not store it.
        self.register_buffer("left_out", torch.tensor(ids, dtype=torch.int64), persistent=False)

    def threshold(self, tokens: Tensor, valid: Tensor) -> Tensor:
        """See `DeterministicPolicy`; reads int64 [B, N]."""
        kept = valid & ~torch.isin(tokens, self.left_out)
        return kept[:, None].expand(-1, 2, -1)


class StopWordsOptions(Options):
    """Options of the list of dropped words."""

    words: tuple[str, ...] | None = Field(
        default=None,
        description="Words to drop; case is ignored. null: English function words.",
    )


STOP_WORDS = Component(
    kind="policy",
    name="stop-words",
    help="Keeps all but function words and tokens without a letter or digit.",
    build=lambda setup, options: StopWordsPolicy(setup, options.words),
    options=StopWordsOptions,
    capabilities=frozenset({"token_ids"}),
)
