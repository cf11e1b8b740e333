"""The encoders that add no context: a mean, source2token alone, vanilla attention alone.

Legend: M sentences, N tokens, R tokens of all sentences, E embedding size.
"""

from __future__ import annotations

__all__ = ["MeanEncoder", "Source2TokenEncoder"]

from torch import Tensor, nn

from rss_rl.models.layers import Source2Token
from rss_rl.ops.gated import gated_mean, union
from rss_rl.ops.masking import masked_mean
from rss_rl.ops.packing import Packed, Rows


class Source2TokenEncoder(nn.Module):
    """source2token over the selected embeddings: ReSAN's 'w/o soft self-attention'.

    With one weight for all features of a token it is vanilla attention, Bi-BloSAN's
    'w/o mBloSA and source2token'.
    """

    reads_unselected = False
    shares_rows = False

    def __init__(self, pool: Source2Token, size: int) -> None:
        super().__init__()
        self.pool = pool
        self.output_size = size

    def forward(self, embedded: Tensor, valid: Tensor, selection: Tensor) -> Tensor:
        """See `Encoder`."""
        return self.pool(embedded, valid & selection.any(1))  # type: ignore[no-any-return]

    def packs(self, values: Tensor) -> bool:
        """See `PackedEncoder`."""
        return self.pool.packs(values)

    def packed(self, words: Rows, tokens: Packed, roles: Tensor) -> Tensor:
        """See `PackedEncoder`."""
        return self.pool.packed(words, tokens)

    def gated(self, embedded: Tensor, valid: Tensor, gates: Tensor) -> Tensor:
        """See `GatedEncoder`."""
        return self.pool.gated(embedded, union(gates))


class MeanEncoder(nn.Module):
    """Mean of the selected embeddings: the paper's 'w/o all attentions'."""

    reads_unselected = False

    def __init__(self, size: int) -> None:
        super().__init__()
        self.output_size = size

    def forward(self, embedded: Tensor, valid: Tensor, selection: Tensor) -> Tensor:
        """See `Encoder`."""
        return masked_mean(embedded, valid & selection.any(1))

    def gated(self, embedded: Tensor, valid: Tensor, gates: Tensor) -> Tensor:
        """See `GatedEncoder`."""
        return gated_mean(embedded, union(gates))
