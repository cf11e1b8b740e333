"""Bi-BloSAN: masked block self-attention in both directions, then source2token.

Legend: M sentences, N tokens, L blocks of R tokens, E embedding size, D hidden.
Source: Shen et al., Bi-directional Block Self-Attention (ICLR 2018); block length: appendix A.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from pydantic import Field, model_validator
from torch import Tensor, nn

from rss_rl.components import Options
from rss_rl.errors import ConfigError
from rss_rl.models.directional import TANH_SCALE
from rss_rl.models.encoders.encoder import EncoderComponent, EncoderSetup
from rss_rl.models.encoders.pooled import PooledEncoder
from rss_rl.models.layers import Dense, Source2Token, glorot_linear
from rss_rl.ops.attention import KernelBackend, feature_wise_attention
from rss_rl.ops.masking import Gathered
from rss_rl.ops.packing import Pairs


class BlockSettings(NamedTuple):
    """Settings of every layer of mBloSA.

    block_length  R
    activation, dropout  of each Dense
    local         False leaves s out of y (the paper's 'w/o local')
    across        False leaves E out of y and out of the module (its 'w/o global')
    backend       what computes the attention
    """

    block_length: int
    activation: str
    dropout: float
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
            TANH_SCALE,
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


_SENTENCES = 4
"""Sentences of a block, in tasks on passages."""


class _BiBloSANOptions(Options):
    block_length: int | None = Field(default=None, ge=1)
    """Tokens of a block; null: by the paper's rule, from the lengths of the training sentences and
    the batch size.
    """
    local: bool = True
    """Tokens have the context within their block."""
    across: bool = True
    """Tokens have the context of other blocks."""

    @model_validator(mode="after")
    def _has_context(self) -> _BiBloSANOptions:
        if not (self.local or self.across):
            raise ValueError("without local and across there is no context: set one of them")
        return self


def _blocks(setup: EncoderSetup, options: _BiBloSANOptions, length: int) -> BlockContext:
    settings = BlockSettings(
        length,
        setup.activation,
        setup.dropout,
        options.local,
        options.across,
        setup.backend,
    )
    return BlockContext(setup.inputs, setup.hidden, settings)


def _length(setup: EncoderSetup, options: _BiBloSANOptions) -> int:
    """Tokens of a block: those of the slot with the longest, as all slots share the encoder."""
    if options.block_length is not None:
        return options.block_length
    if setup.lengths is None:
        raise ConfigError(
            "the length of a block is computed from the lengths of the training sentences, which"
            " are unknown: passages do not have them, nor do data prepared by an earlier version",
            where="model.encoder.options.block_length",
            remedy="Give a number of tokens, such as 5",
        )
    batch = setup.lengths.batch_size
    return max(block_length(mean, spread, batch) for mean, spread in setup.lengths.slots)


def _build(setup: EncoderSetup, options: _BiBloSANOptions) -> PooledEncoder:
    return PooledEncoder.over(_blocks(setup, options, _length(setup, options)), setup)


def _context(setup: EncoderSetup, options: _BiBloSANOptions) -> BlockContext:
    return _blocks(setup, options, _SENTENCES)


BIBLOSAN = EncoderComponent(
    name="biblosan",
    help="Feature-wise attention within blocks of tokens, and between the blocks.",
    build=_build,
    context=_context,
    options=_BiBloSANOptions,
    capabilities=frozenset({"kept_only", "kernels", "feature_attention"}),
    source="Shen et al., Bi-BloSAN, ICLR 2018",
)


def expected_longest(mean: float, spread: float, batch: int) -> float:
    """Upper bound on the expected longest of `batch` lengths from N(mean, spread^2).

    E[longest] <= mean + spread sqrt(2 ln batch).

    Args:
        mean, spread: of the lengths, in tokens. batch: sentences, 1 or more.

    >>> expected_longest(14.0, 0.0, 64), expected_longest(14.0, 6.0, 1)
    (14.0, 14.0)
    >>> round(expected_longest(14.0, 6.0, 64), 2)
    31.3
    """
    return mean + spread * math.sqrt(2 * math.log(batch))


def block_length(mean: float, spread: float = 0.0, batch: int = 1) -> int:
    """Block length r, in tokens, that needs the least memory; rounded, at least 1.

    Attention within n / r blocks and between them takes n r + (n / r)^2, least at r = (2 n)^(1/3).
    n is the expected longest of a batch, or `mean` if all sentences have one length.

    Args:
        mean, spread: of the lengths, in tokens. batch: sentences, 1 or more.

    >>> [block_length(n) for n in (0, 1, 32, 500)]
    [1, 1, 4, 10]
    >>> block_length(14.0, 6.0, 64)
    4
    """
    return max(1, round(math.cbrt(2 * expected_longest(mean, spread, batch))))
