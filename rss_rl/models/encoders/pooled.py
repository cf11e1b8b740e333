"""A context layer and source2token over its tokens, as in most sentence encoders.

Legend: M sentences, N tokens, E embedding size.
"""

from __future__ import annotations

from torch import Tensor, nn

from rss_rl.models.dropout import packed_rows
from rss_rl.models.encoders.encoder import EncoderSetup, PackedEncoder, TokenEncoder
from rss_rl.models.layers import Source2Token
from rss_rl.ops.packing import Packed, WordRows


def source2token(setup: EncoderSetup, size: int) -> Source2Token:
    """The pooling of `size` features for a setup."""
    return Source2Token(size, setup.activation, setup.dropout, backend=setup.backend)


def encode_padded(
    encoder: PackedEncoder, embedded: Tensor, valid: Tensor, selection: Tensor
) -> Tensor:
    """Run an encoder of packed tokens on padded ones; see `Encoder`."""
    read = valid if encoder.reads_unselected else valid & selection.any(1)
    tokens, roles = Packed.of([read]), selection.transpose(1, 2)[read]
    with packed_rows(tokens):
        return encoder.packed(WordRows(embedded[read]), tokens, roles[None])


class NoContext(nn.Module):
    """A context layer that leaves each position as it is."""

    def __init__(self, output_size: int) -> None:
        super().__init__()
        self.output_size = output_size

    def forward(self, embedded: Tensor, valid: Tensor) -> Tensor:
        """See `TokenEncoder`."""
        return embedded


class PooledEncoder(nn.Module):
    """source2token over the tokens that a context layer returns.

    Args:
        context: reads only the selected tokens, the others are removed before it.
        pool: of `context.output_size` features.
    """

    reads_unselected = False

    def __init__(self, context: TokenEncoder, pool: Source2Token) -> None:
        super().__init__()
        self.context, self.pool = context, pool
        self.output_size = context.output_size

    @classmethod
    def over(cls, context: TokenEncoder, setup: EncoderSetup) -> PooledEncoder:
        """The encoder with the pooling for the setup."""
        return cls(context, source2token(setup, context.output_size))

    def forward(self, embedded: Tensor, valid: Tensor, selection: Tensor) -> Tensor:
        """See `Encoder`."""
        return self.pool(self.context(embedded, valid), valid)  # type: ignore[no-any-return]
