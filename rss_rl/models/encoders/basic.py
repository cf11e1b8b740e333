"""The encoders without context: a mean, source2token alone, vanilla attention alone.

Legend: M sentences, N tokens, R tokens of all sentences, E embedding size.
"""

from __future__ import annotations

from torch import Tensor, nn

from rss_rl.components import Options
from rss_rl.models.encoders.encoder import EncoderComponent, EncoderSetup
from rss_rl.models.encoders.pooled import encode_padded, source2token
from rss_rl.models.layers import Source2Token
from rss_rl.ops.gated import gated_mean, union
from rss_rl.ops.masking import masked_mean
from rss_rl.ops.packing import Packed, WordRows


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
        return encode_padded(self, embedded, valid, selection)

    def packed(self, words: WordRows, tokens: Packed, roles: Tensor) -> Tensor:
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


def _source2token(setup: EncoderSetup, options: Options) -> Source2TokenEncoder:
    return Source2TokenEncoder(source2token(setup, setup.inputs), setup.inputs)


def _attention(setup: EncoderSetup, options: Options) -> Source2TokenEncoder:
    pool = Source2Token(setup.inputs, setup.activation, setup.dropout, by_feature=False)
    return Source2TokenEncoder(pool, setup.inputs)


def _mean(setup: EncoderSetup, options: Options) -> MeanEncoder:
    return MeanEncoder(setup.inputs)


_CAPABILITIES = frozenset({"gates", "kept_only"})

SOURCE2TOKEN = EncoderComponent(
    name="source2token",
    help="Feature-wise attention of the sentence to its selected tokens; no context.",
    build=_source2token,
    capabilities=_CAPABILITIES | {"kernels"},
    source="Shen et al., DiSAN, AAAI 2018, section 3.2",
)

ATTENTION = EncoderComponent(
    name="attention",
    help="One attention weight for each selected token, the same for all features; no context.",
    build=_attention,
    capabilities=_CAPABILITIES,
    source="Shen et al., Bi-BloSAN, ICLR 2018, table 2",
)

MEAN = EncoderComponent(
    name="mean",
    help="Mean of the selected word vectors.",
    build=_mean,
    capabilities=_CAPABILITIES,
    source="Shen et al., ReSAN, IJCAI 2018, table 2",
)
