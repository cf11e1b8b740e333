"""States of words in their whole text, by a frozen transformer, for contextual policies.

Legend: B examples, N tokens of the longest sentence, H hidden size.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import torch
from torch import Tensor

from rss_rl.ops.ragged import SentenceEnds, sentence_numbers
from rss_rl.pretrained.folder import Pretrained, open_pretrained
from rss_rl.pretrained.reader import WordReader, keep_first_layers
from rss_rl.types import Window


class ContextReader:
    """A frozen transformer, loaded on first use.

    Args:
        name: of its folder, or on the Hugging Face hub.
        words: of the ids.
        layers: that are computed, from the first; None = all.
        window: what it reads at once, a `text` or each `sentence` by itself.

    Raises:
        ConfigError: there is no such transformer, or it cannot be used.
    """

    def __init__(
        self,
        name: str,
        words: Sequence[str],
        layers: int | None = None,
        window: Window = "text",
    ) -> None:
        self.pretrained: Pretrained = open_pretrained(name)
        self._words, self._layers, self._window = words, layers, window
        self._ends = SentenceEnds(words)

    @property
    def size(self) -> int:
        """H."""
        return int(self.pretrained.config.hidden_size)

    @cached_property
    def reader(self) -> WordReader:
        """The transformer with its weights."""
        model = self.pretrained.encoder().requires_grad_(False)
        if self._layers is not None:
            keep_first_layers(model, self._layers, self.pretrained.name)
        return WordReader(self.pretrained, model, self._words).eval()

    def add_words(self, words: Sequence[str]) -> None:
        """Add words, with the ids after the existing ones."""
        self.reader.table.add(words)
        self._ends.add_words(words)

    def states(self, tokens: Tensor, valid: Tensor) -> Tensor:
        """State of each token: the mean of its pieces in the last layer that is computed.

        Args:
            tokens: int64 [B, N]. valid: bool [B, N].

        Returns:
            float32 [B, N, H], zeros on padding.
        """
        self.reader.to(tokens.device)
        read = torch.arange(len(valid), device=valid.device)[:, None].expand_as(valid)[valid]
        if self._window == "sentence":
            sentence = (
                sentence_numbers(self._ends(tokens)[valid]) + read
            )  # ascending, and one more in another text
            read = torch.unique_consecutive(sentence, return_inverse=True)[1]
        padded = torch.zeros(*valid.shape, self.size, dtype=torch.float32, device=valid.device)
        if len(read):
            with torch.no_grad():
                states = self.reader.word_states(tokens[valid], read, int(read.max()) + 1)
            padded[valid] = states
        return padded
