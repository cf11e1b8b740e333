"""ReSAN's encoder.

Legend: M sentences, N tokens, R tokens of all sentences, E embedding size, D hidden.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from rss_rl.components import Options
from rss_rl.models.directional import (
    AttentionSettings,
    ReSA,
)
from rss_rl.models.encoders.encoder import EncoderComponent, EncoderSetup
from rss_rl.models.encoders.pooled import encode_padded, source2token
from rss_rl.models.layers import Source2Token
from rss_rl.ops.gated import union
from rss_rl.ops.packing import Packed, WordRows
from rss_rl.types import HEAD


class ReSANEncoder(nn.Module):
    """ReSA, then source2token over the tokens that come out of it.

    Args:
        every: each token that is selected in either role is head and dependent: DiSA.
    """

    def __init__(self, resa: ReSA, pool: Source2Token, *, every: bool = False) -> None:
        super().__init__()
        self.resa, self.pool = resa, pool
        self.output_size = resa.output_size
        self.reads_unselected = resa.keeps_unselected
        self.shares_rows = not every
        self._every = every

    def forward(self, embedded: Tensor, valid: Tensor, selection: Tensor) -> Tensor:
        """See `Encoder`."""
        return encode_padded(self, embedded, valid, selection)

    def packed(self, words: WordRows, tokens: Packed, roles: Tensor) -> Tensor:
        """See `PackedEncoder`."""
        selected = torch.ones_like(roles) if self._every else roles
        contextual = self.resa.packed(words, tokens, selected)
        if contextual.others is None:
            return self.pool.packed(WordRows(contextual.vectors), contextual.tokens)
        cells, baseline = contextual.others
        return self.pool.packed_shared(contextual.vectors, cells, tokens, len(roles), baseline)

    def gated(self, embedded: Tensor, valid: Tensor, gates: Tensor) -> Tensor:
        """See `GatedEncoder`; if unselected tokens are kept, a head's gate acts on its context."""
        if self._every:
            gates = union(gates)[:, None].expand_as(gates)
        context = self.resa.gated(embedded, valid, gates)
        pooled = valid.to(gates.dtype) if self.reads_unselected else gates[:, HEAD]
        return self.pool.gated(context, pooled)


def disa(setup: EncoderSetup, options: Options) -> ReSA:
    """Directional self-attention over words or whole sentences, all of them selected."""
    return resa(setup, keep_unselected=False)


def resa(setup: EncoderSetup, *, keep_unselected: bool) -> ReSA:
    """ReSA for a setup."""
    settings = AttentionSettings(setup.activation, setup.dropout, setup.backend)
    return ReSA(setup.inputs, setup.hidden, settings, keep_unselected=keep_unselected)


class _ReSANOptions(Options):
    keep_unselected: bool = False
    """true: the paper's ReSAN, an unselected token still reaches the sentence vector; false: the
    faithful form, only selected heads stay.
    """


def _build(setup: EncoderSetup, options: _ReSANOptions) -> ReSANEncoder:
    context = resa(setup, keep_unselected=options.keep_unselected)
    return ReSANEncoder(context, source2token(setup, context.output_size))


def _capabilities(options: _ReSANOptions) -> frozenset[str]:
    known = frozenset({"gates", "kept_only", "kernels", "feature_attention"})
    return known - {"kept_only"} if options.keep_unselected else known


RESAN = EncoderComponent(
    name="resan",
    help="Feature-wise attention of each selected head to the selected dependents.",
    build=_build,
    context=disa,  # only words are selected: all sentences are kept
    options=_ReSANOptions,
    capabilities=_capabilities,
    source="Shen et al., ReSAN, IJCAI 2018",
)
