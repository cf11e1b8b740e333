"""DiSAN: directional self-attention among all tokens, then source2token.

Legend: M sentences, N tokens, R tokens of all sentences, E embedding size, D hidden.
Source: Shen et al., DiSAN (AAAI 2018), section 4.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from rss_rl.components import Options
from rss_rl.models.directional import (
    AttentionSettings,
    DirectionalAttention,
    ReSA,
    typed_directions,
)
from rss_rl.models.encoders.pooled import encode_padded, source2token
from rss_rl.models.encoders.protocol import EncoderComponent, EncoderSetup
from rss_rl.models.layers import Source2Token
from rss_rl.ops.gated import union
from rss_rl.ops.packing import Packed, Rows


class DiSANEncoder(nn.Module):
    """DiSA of the selected tokens, then source2token."""

    reads_unselected = False
    shares_rows = False

    def __init__(self, context: ReSA, pool: Source2Token) -> None:
        super().__init__()
        self.context, self.pool = context, pool
        self.output_size = context.output_size

    def forward(self, embedded: Tensor, valid: Tensor, selection: Tensor) -> Tensor:
        """See `Encoder`."""
        return encode_padded(self, embedded, valid, selection)

    def packed(self, words: Rows, tokens: Packed, roles: Tensor) -> Tensor:
        """See `PackedEncoder`."""
        found = self.context.packed(words, tokens, torch.ones_like(roles))
        return self.pool.packed(Rows(found.vectors), tokens)

    def gated(self, embedded: Tensor, valid: Tensor, gates: Tensor) -> Tensor:
        """See `GatedEncoder`."""
        either = union(gates)
        context = self.context.gated(embedded, valid, either[:, None].expand_as(gates))
        return self.pool.gated(context, either)

    def attending(self, selection: Tensor) -> tuple[Sequence[DirectionalAttention], Tensor]:
        """See `AttendingEncoder`; every kept token is head and dependent."""
        return list(typed_directions(self.context.directions)), selection.any(0).expand(2, -1)


def attention_settings(setup: EncoderSetup) -> AttentionSettings:
    """The settings of the encoder's directions."""
    return AttentionSettings(setup.activation, setup.dropout, setup.tanh_scale, setup.backend)


def disa(setup: EncoderSetup, options: Options) -> ReSA:
    """Directional self-attention over words or whole sentences, all of them selected."""
    return ReSA(setup.inputs, setup.hidden, attention_settings(setup))


def _build(setup: EncoderSetup, options: Options) -> DiSANEncoder:
    context = disa(setup, options)
    return DiSANEncoder(context, source2token(setup, context.output_size))


DISAN = EncoderComponent(
    name="disan",
    help="Feature-wise attention of each selected token to those before and after it.",
    build=_build,
    context=disa,
    capabilities=frozenset({"gates", "kept_only", "kernels", "feature_attention"}),
    source="Shen et al., DiSAN, AAAI 2018",
)
