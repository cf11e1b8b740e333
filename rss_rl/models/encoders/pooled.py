"""A context layer and a pooling of its tokens: what most sentence encoders are.

Legend: M sentences, N tokens, R tokens of all sentences, E embedding size.
"""

from __future__ import annotations

__all__ = ["GatedPooledEncoder", "PooledEncoder"]

from torch import Tensor, nn

from rss_rl.models.encoders.disan import DiSA
from rss_rl.models.encoders.protocol import TokenEncoder
from rss_rl.models.layers import Source2Token
from rss_rl.ops.gated import union
from rss_rl.ops.packing import Packed, Rows


class PooledEncoder(nn.Module):
    """source2token over the tokens that a context layer returns.

    Args:
        context: sees the selected tokens alone, the others are removed before it.
        pool: of `context.output_size` features.
    """

    reads_unselected = False

    def __init__(self, context: TokenEncoder, pool: Source2Token) -> None:
        super().__init__()
        self.context, self.pool = context, pool
        self.output_size = context.output_size

    def forward(self, embedded: Tensor, valid: Tensor, selection: Tensor) -> Tensor:
        """See `Encoder`."""
        return self.pool(self.context(embedded, valid), valid)  # type: ignore[no-any-return]


class GatedPooledEncoder(nn.Module):
    """DiSAN's encoder, a `PooledEncoder` that takes gates and packed tokens as well."""

    reads_unselected = False
    shares_rows = False

    def __init__(self, context: DiSA, pool: Source2Token) -> None:
        super().__init__()
        self.context, self.pool = context, pool
        self.output_size = context.output_size

    def forward(self, embedded: Tensor, valid: Tensor, selection: Tensor) -> Tensor:
        """See `Encoder`."""
        return self.pool(self.context(embedded, valid), valid)  # type: ignore[no-any-return]

    def packs(self, values: Tensor) -> bool:
        """See `PackedEncoder`."""
        return self.context.packs(values) and self.pool.packs(values)

    def packed(self, words: Rows, tokens: Packed, roles: Tensor) -> Tensor:
        """See `PackedEncoder`."""
        return self.pool.packed(Rows(self.context.packed(words, tokens)), tokens)

    def gated(self, embedded: Tensor, valid: Tensor, gates: Tensor) -> Tensor:
        """See `GatedEncoder`."""
        either = union(gates)
        return self.pool.gated(self.context.gated(embedded, valid, either), either)
