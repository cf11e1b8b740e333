"""A context layer and a pooling of its tokens: what most sentence encoders are.

Legend: M sentences, N tokens, E embedding size.
"""

from __future__ import annotations

__all__ = ["PooledEncoder"]

from torch import Tensor, nn

from rss_rl.models.encoders.protocol import TokenEncoder
from rss_rl.models.layers import Source2Token


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
