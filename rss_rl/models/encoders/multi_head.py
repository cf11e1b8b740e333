"""Multi-head scaled dot-product self-attention.

Legend: M sentences, N tokens, E embedding size, H heads, K features of a head.
Source: Vaswani et al., Attention Is All You Need (2017), sections 3.2 and 3.5.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from rss_rl.components import Options
from rss_rl.errors import ConfigError
from rss_rl.models.dropout import Dropout
from rss_rl.models.encoders.encoder import EncoderComponent, EncoderSetup
from rss_rl.models.encoders.pooled import PooledEncoder
from rss_rl.models.layers import glorot_blocks, glorot_linear


def sinusoidal_positions(embedded: Tensor) -> Tensor:
    """PE(n, 2i) = sin(n / 10000^(2i / E)), PE(n, 2i + 1) = cos(n / 10000^(2i / E)), n from 0.

    Args:
        embedded: [M, N, E], to which they will be added; E may be odd.

    Returns:
        [N, E].
    """
    _, tokens, size = embedded.shape
    even = torch.arange(0, size, 2, dtype=embedded.dtype, device=embedded.device)
    place = torch.arange(tokens, dtype=embedded.dtype, device=embedded.device)
    angles = place[:, None] * torch.exp2(even / -size * math.log2(10000.0))  # [N, E / 2]
    return torch.stack([angles.sin(), angles.cos()], -1).flatten(1)[:, :size]


class MultiHeadContext(nn.Module):
    """softmax(Q K^T / sqrt(K)) V for each head, over tokens plus their positions; no output map.

    Q, K and V are three linear maps without bias of x + PE / sqrt(E): words and positions in the
    ratio of the Transformer, which adds PE to sqrt(E) x (Vaswani et al. 2017, section 3.4). In
    x + PE, positions drown word vectors of the usual length. They count the kept tokens, so that
    removed ones leave no gap.

    Args:
        inputs: E. size: H K, all heads together. heads: H, a divisor of `size`.
        dropout: rate on the input of the maps and on the attention weights.
    """

    def __init__(self, inputs: int, size: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.dropout = Dropout(dropout)
        self.project = glorot_linear(inputs, 3 * size, bias=False)
        glorot_blocks(self.project.weight, 3)
        self.attention_dropout = Dropout(dropout)
        self._heads = heads
        self.output_size = size

    def forward(self, embedded: Tensor, valid: Tensor) -> Tensor:
        """See `TokenEncoder`."""
        placed = embedded + sinusoidal_positions(embedded) * embedded.shape[-1] ** -0.5
        parts = self.project(self.dropout(placed)).chunk(3, -1)
        head_size = self.output_size // self._heads
        query, key, value = (  # [M, H, N, K] each
            part.view(*valid.shape, self._heads, head_size).transpose(1, 2) for part in parts
        )
        # Without tokens all padding is visible, else the softmax is NaN; the result is never read.
        visible = (valid | ~valid.any(1, keepdim=True))[:, None, None]
        if self.training and self.attention_dropout.rate:
            context = self._dropped_attention(query, key, value, visible)
        else:
            context = F.scaled_dot_product_attention(query, key, value, visible)
        return context.transpose(1, 2).flatten(2).to(embedded.dtype)

    def _dropped_attention(
        self, query: Tensor, key: Tensor, value: Tensor, visible: Tensor
    ) -> Tensor:
        """As torch's, with dropout of the weights keyed by example."""
        logits = (query * query.shape[-1] ** -0.5) @ key.transpose(2, 3)  # [M, H, N, N]
        weights = torch.softmax(logits.masked_fill(~visible, -torch.inf), -1)
        # Heads come after tokens, else the position of a weight would depend on the padding.
        dropped: Tensor = self.attention_dropout(weights.transpose(1, 2))
        return dropped.transpose(1, 2) @ value


class _MultiHeadOptions(Options):
    heads: int = Field(default=8, ge=1)
    """Number of heads, a divisor of 2 D."""


def _context(setup: EncoderSetup, options: _MultiHeadOptions) -> MultiHeadContext:
    size = 2 * setup.hidden
    if size % options.heads:
        raise ConfigError(
            f"heads={options.heads} cannot share {size} features (2 x hidden={setup.hidden}) out"
            " evenly",
            where="model.encoder.options",
            remedy="Give a divisor of 2 x model.hidden",
        )
    return MultiHeadContext(setup.inputs, size, options.heads, setup.dropout)


MULTI_HEAD = EncoderComponent(
    name="multi-head",
    help="Scaled dot-product attention in several heads, then source2token.",
    build=lambda setup, options: PooledEncoder.over(_context(setup, options), setup),
    context=_context,
    options=_MultiHeadOptions,
    capabilities=frozenset({"kept_only", "kernels"}),
    source="Vaswani et al., NeurIPS 2017",
)
