"""The subword pieces of each word of a vocabulary, for the tokenizer of a transformer.

Each word is tokenized by itself, after a space, as in a text whose words are joined by spaces.

Legend: V words, R words of some texts, P pieces of these.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from rss_rl.ops.ragged import ragged_rows

_SPECIAL_WORDS = 2
"""The first words of a vocabulary, `<pad>` and `<unk>`, stand for no text."""


class PieceTable(nn.Module):
    """The pieces of every word, concatenated; buffers that are not saved.

    Args:
        tokenizer: a fast one of `transformers`.
        words: of the ids.
        more: pieces of the ids that follow.
    """

    starts: Tensor
    pieces: Tensor

    def __init__(
        self, tokenizer: Any, words: Sequence[str], more: Sequence[Sequence[int]] = ()
    ) -> None:
        super().__init__()
        self._tokenizer = tokenizer
        self._unknown = [tokenizer.unk_token_id if tokenizer.unk_token_id is not None else 0]
        lists = [self._unknown] * _SPECIAL_WORDS + self._cut(words[_SPECIAL_WORDS:])
        starts, pieces = _packed([*lists, *more])
        self.register_buffer("starts", starts, persistent=False)
        self.register_buffer("pieces", pieces, persistent=False)

    def _cut(self, words: Sequence[str]) -> list[list[int]]:
        backend = self._tokenizer.backend_tokenizer
        backend.no_padding()  # its file may enable both
        backend.no_truncation()
        found = backend.encode_batch([f" {word}" for word in words], add_special_tokens=False)
        return [encoding.ids or self._unknown for encoding in found]

    def __len__(self) -> int:
        return len(self.starts) - 1

    def add(self, words: Sequence[str]) -> None:
        """Add words, with the ids after the existing ones."""
        lists = self._cut(words)
        starts, pieces = _packed(lists)
        device = self.starts.device
        self.starts = torch.cat([self.starts, starts[1:].to(device) + self.starts[-1]])
        self.pieces = torch.cat([self.pieces, pieces.to(device)])

    def of(self, words: Tensor) -> tuple[Tensor, Tensor]:
        """Pieces int64 [P] of words int64 [R], and how many each has, int64 [R]."""
        start = self.starts[words]
        count = self.starts[words + 1] - start
        return self.pieces[ragged_rows(start, count)], count


def _packed(lists: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
    counts = torch.tensor([0, *map(len, lists)], dtype=torch.int64, device="cpu")
    flat = [piece for each in lists for piece in each]
    return counts.cumsum(0), torch.tensor(flat, dtype=torch.int64, device="cpu")


def special_pieces(tokenizer: Any, texts: int = 1) -> tuple[list[int], list[int], list[int]]:
    """Pieces that a tokenizer adds before a text, between two, and at the end: [CLS], [SEP].

    Args:
        texts: 2 for pairs.
    """
    plain = tokenizer("a", add_special_tokens=False)["input_ids"]
    whole = tokenizer(*["a"] * texts)["input_ids"]
    starts = [i for i in range(len(whole)) if whole[i : i + len(plain)] == plain]
    first, last = starts[0], starts[-1]
    return whole[:first], whole[first + len(plain) : last], whole[last + len(plain) :]
