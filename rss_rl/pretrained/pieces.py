"""The subword pieces of each word of a vocabulary, for the tokenizer of a transformer.

Each word is tokenized by itself, after a space, as in a text whose words are joined by spaces.

Legend: V words, R words of some texts, P pieces of these.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from rss_rl.errors import ConfigError
from rss_rl.ops.ragged import ragged_rows
from rss_rl.pretrained.folder import Pretrained, blamed_on
from rss_rl.types import LONGEST_WORD

_SPECIAL_WORDS = 2
"""The first words of a vocabulary, `<pad>` and `<unk>`, stand for no text."""
_UNHEARD = "\U0010fffd"
"""Of no alphabet: words of use may be of any."""


class PieceTable(nn.Module):
    """The pieces of every word, concatenated; buffers that are not saved.

    Args:
        pretrained: whose tokenizer cuts words.
        words: of the ids.
        limit: pieces that the model knows.
        more: pieces of the ids that follow.

    Raises:
        ConfigError: the tokenizer cannot cut them, or cuts them to pieces beyond the limit.
    """

    starts: Tensor
    pieces: Tensor

    def __init__(
        self,
        pretrained: Pretrained,
        words: Sequence[str],
        limit: int,
        more: Sequence[Sequence[int]] = (),
    ) -> None:
        super().__init__()
        self._pretrained, self._limit = pretrained, limit
        unknown = pretrained.tokenizer.unk_token_id
        self._unknown = [unknown if unknown is not None else 0]
        self._cut([_UNHEARD])
        lists = [self._unknown] * _SPECIAL_WORDS + self._cut(words[_SPECIAL_WORDS:])
        starts, pieces = _packed([*lists, *more])
        self.register_buffer("starts", starts, persistent=False)
        self.register_buffer("pieces", pieces, persistent=False)

    def _cut(self, words: Sequence[str]) -> list[list[int]]:
        name = self._pretrained.name
        backend = self._pretrained.tokenizer.backend_tokenizer
        backend.no_padding()  # its file may enable both
        backend.no_truncation()
        with blamed_on(name, "its tokenizer cannot cut words"):
            texts = [f" {word[:LONGEST_WORD]}" for word in words]
            encodings = backend.encode_batch(texts, add_special_tokens=False)
        lists = [encoding.ids or self._unknown for encoding in encodings]
        if (last := max((max(ids) for ids in lists), default=0)) >= self._limit:
            raise ConfigError(
                f"its tokenizer gives piece {last}, and the model has {self._limit:,} pieces",
                where=name,
                remedy="Save the tokenizer that it was trained with next to it",
            )
        return lists

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


def special_pieces(
    pretrained: Pretrained, texts: int = 1
) -> tuple[list[int], list[int], list[int]]:
    """Pieces that a tokenizer adds before a text, between two, and at the end: [CLS], [SEP].

    Args:
        texts: 2 for pairs.

    Raises:
        ConfigError: it cannot cut texts.
    """
    tokenizer = pretrained.tokenizer
    with blamed_on(pretrained.name, "its tokenizer cannot cut words"):
        plain = tokenizer("a", add_special_tokens=False)["input_ids"]
        together = tokenizer(*["a"] * texts)["input_ids"]
    starts = [i for i in range(len(together)) if together[i : i + len(plain)] == plain]
    first, last = starts[0], starts[-1]
    return together[:first], together[first + len(plain) : last], together[last + len(plain) :]
