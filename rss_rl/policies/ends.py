"""What policies share that are told where sentences end.

Legend: B texts, N tokens.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from rss_rl.errors import ConfigError
from rss_rl.ops.sentence_ends import sentence_ends, stop_ids


class KnowsEnds(nn.Module):
    """Base class of a `ReadsEnds`, see `rss_rl.policies.protocol`.

    Args:
        words: word of each token id; None: the policy is not told where sentences end.
        where: key of the setting that asks for it. without: its value that does not.

    Raises:
        ConfigError: there is no vocabulary to look words up in.
    """

    stops: Tensor

    def __init__(self, words: Sequence[str] | None, where: str, without: str) -> None:
        super().__init__()
        self.reads_ends = words is not None
        if words is not None and not words:
            raise ConfigError(
                "it looks for the words that end a sentence, and the words of the token ids are not"
                " known",
                where=where,
                remedy=f"Use it with prepared data, or set {where}={without}",
            )
        # Derived from the vocabulary: a checkpoint need not store it.
        self.register_buffer("stops", stop_ids(words or ()), persistent=False)

    def ends(self, tokens: Tensor) -> Tensor:
        """Whether a sentence ends with a token of int64 [B, N], bool [B, N]."""
        return sentence_ends(tokens, self.stops)
