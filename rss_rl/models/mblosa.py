"""mBloSA, masked block self-attention: local context within blocks, global context between them.

A sentence of n tokens costs n r + (n / r)^2 pairs in blocks of r tokens, instead of n^2.

Legend: M sequences, N tokens, L blocks, R tokens of a block (N padded to L R), E embedding size,
D hidden.
Source: Shen et al., Bi-directional Block Self-Attention (ICLR 2018), section 3.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rss_rl.models.layers import Dense, Source2Token, glorot_linear
from rss_rl.ops.attention import KernelBackend, feature_wise_attention
from rss_rl.ops.attention_pairs import Pairs
from rss_rl.ops.masking import Gathered


class BlockSettings(NamedTuple):
    """Settings of every layer of mBloSA.

    block_length  R
    activation, dropout  of each Dense
    scale         c of the attention logit
    local         False leaves s out of y (the paper's 'w/o local')
    across        False leaves E out of y and out of the module (its 'w/o global')
    backend       what computes the attention
    """

    block_length: int
    activation: str
    dropout: float
    scale: float
    local: bool = True
    across: bool = True
    backend: KernelBackend = "eager"


class MaskedSelfAttention(nn.Module):
    """s_j = sum_i P^j_i * h_i, f(h_i, h_j) = c tanh((W1 h_i + W2 h_j + b) / c) + M_ij.

    Args:
        size: D.
        forward: True = a head attends to what is before it, False = after it.
    """

    def __init__(self, size: int, settings: BlockSettings, *, forward: bool) -> None:
        super().__init__()
        self.dependent_score = glorot_linear(size, size, bias=False)
        self.head_score = glorot_linear(size, size, bias=False)
        self.score_bias = nn.Parameter(torch.zeros(size))
        self._looks_back = forward
        self._scale = settings.scale
        self._backend: KernelBackend = settings.backend

    def forward(self, values: Tensor, kept: Tensor) -> Tensor:
        """[..., N, D] with kept bool [..., N] to the same shape; 0 for heads without dependents.

        Leading dimensions are independent sequences.
        """
        flat, real = values.flatten(0, -3), kept.flatten(0, -2)
        tokens = Gathered(torch.arange(real.shape[1], device=kept.device).expand_as(real), real)
        context = feature_wise_attention(
            self.head_score(flat) + self.score_bias,
            self.dependent_score(flat),
            flat,
            Pairs(tokens, tokens, "before" if self._looks_back else "after"),
            self._scale,
            self._backend,
        )
        return context.view_as(values)


class BlockSelfAttention(nn.Module):
    """One direction of mBloSA.

    h = Dense(x); s = masked self-attention within each block; v_l = source2token of s in block l;
    o = masked self-attention over v; G = sigmoid(W1 o + W2 v + b); E = G * o + (1 - G) * v, one
    for all tokens of its block; with y = [h; s; E] the output is g * Dense(y) + (1 - g) * h,
    g = sigmoid(W y + b).

    Args:
        inputs: E. hidden: D.
        forward: True = a head attends to what is before it, False = after it.
    """

    def __init__(self, inputs: int, hidden: int, settings: BlockSettings, *, forward: bool) -> None:
        super().__init__()
        dense = settings.activation, settings.dropout
        self.project = Dense(inputs, hidden, *dense)
        self.within = MaskedSelfAttention(hidden, settings, forward=forward)
        self.between = None
        if settings.across:
            self.between = _BetweenBlocks(hidden, settings, forward=forward)
        joined = hidden * (1 + settings.local + settings.across)
        self.fusion = Dense(joined, hidden, *dense)
        self.fusion_gate = glorot_linear(joined, hidden)
        self._length = settings.block_length
        self._local = settings.local

    def forward(self, embedded: Tensor, valid: Tensor) -> Tensor:
        """See `TokenEncoder`; [M, N, D]."""
        tokens = valid.shape[1]
        # A batch of short sentences is one block, which need not be padded to the block length.
        length = max(1, min(self._length, tokens))
        blocks = -(-tokens // length)
        hidden = self.project(embedded)  # [M, N, D]
        missing, shape = blocks * length - tokens, (len(valid), blocks, length)
        parts = F.pad(hidden, (0, 0, 0, missing)).view(*shape, hidden.shape[-1])  # [M, L, R, D]
        kept = F.pad(valid, (0, missing)).view(shape)
        local = self.within(parts, kept)  # [M, L, R, D]
        joined = [parts, local] if self._local else [parts]
        if self.between is not None:
            joined.append(self.between(local, kept)[:, :, None].expand_as(parts))
        features = torch.cat(joined, -1).flatten(1, 2)[:, :tokens]  # [M, N, up to 3D]
        gate = torch.sigmoid(self.fusion_gate(features))
        return torch.lerp(hidden, self.fusion(features), gate)


class _BetweenBlocks(nn.Module):
    """Context of each block: its vector v, o by attention over the blocks, and a gate of both."""

    def __init__(self, hidden: int, settings: BlockSettings, *, forward: bool) -> None:
        super().__init__()
        self.pool = Source2Token(
            hidden, settings.activation, settings.dropout, backend=settings.backend
        )
        self.attention = MaskedSelfAttention(hidden, settings, forward=forward)
        self.gate_context = glorot_linear(hidden, hidden, bias=False)
        self.gate_block = glorot_linear(hidden, hidden)

    def forward(self, local: Tensor, kept: Tensor) -> Tensor:
        """[M, L, R, D] with kept bool [M, L, R] to [M, L, D]."""
        block = self.pool(local, kept)
        context = self.attention(block, kept.any(-1))
        gate = torch.sigmoid(self.gate_context(context) + self.gate_block(block))
        return torch.lerp(block, context, gate)


class BlockContext(nn.Module):
    """mBloSA in both directions, untied, outputs concatenated to 2D: Bi-BloSA.

    Arguments as of `BlockSelfAttention`. A `TokenEncoder`.
    """

    def __init__(self, inputs: int, hidden: int, settings: BlockSettings) -> None:
        super().__init__()
        self.output_size = 2 * hidden
        self.directions = nn.ModuleList(
            BlockSelfAttention(inputs, hidden, settings, forward=forward)
            for forward in (True, False)
        )

    def forward(self, embedded: Tensor, valid: Tensor) -> Tensor:
        """See `TokenEncoder`."""
        return torch.cat([direction(embedded, valid) for direction in self.directions], -1)
