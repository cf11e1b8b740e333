"""Context by recurrence over the tokens, in both directions.

Legend: M sentences, N tokens, E embedding size, D hidden size of each direction.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from rss_rl.components import Options
from rss_rl.models.bidirectional import Bidirectional
from rss_rl.models.dropout import Dropout
from rss_rl.models.encoders.pooled import PooledEncoder
from rss_rl.models.encoders.protocol import EncoderComponent, EncoderSetup
from rss_rl.models.layers import glorot_blocks, glorot_linear
from rss_rl.ops.recurrence import gated_average


class RecurrentContext(nn.Module):
    """Bidirectional LSTM (Graves et al. 2013) or GRU (Chung et al. 2014) of one layer.

    Args:
        cell: `nn.LSTM` or `nn.GRU`. inputs: E. hidden: D.
        dropout: rate on the input.
    """

    def __init__(
        self, cell: type[nn.LSTM] | type[nn.GRU], inputs: int, hidden: int, dropout: float
    ) -> None:
        super().__init__()
        self.dropout = Dropout(dropout)
        self.recurrence = Bidirectional(cell, inputs, hidden)
        self.output_size = self.recurrence.output_size
        for matrix in self.recurrence.matrices():
            glorot_blocks(matrix, len(matrix) // hidden)

    def forward(self, embedded: Tensor, valid: Tensor) -> Tensor:
        """See `TokenEncoder`."""
        return self.recurrence(self.dropout(embedded), valid)  # type: ignore[no-any-return]


class SRUContext(nn.Module):
    """Bidirectional simple recurrent unit (Lei and Zhang 2017).

    x~ = W x; f = sigmoid(W_f x + b_f); r = sigmoid(W_r x + b_r);
    c_t = f * c_{t-1} + (1 - f) * x~; h = r * tanh(c) + (1 - r) * x, x through a linear map where
    E and D differ. One matrix product serves all maps of both directions.

    Args:
        inputs: E. hidden: D. dropout: rate on the input of the matrix products.
    """

    def __init__(self, inputs: int, hidden: int, dropout: float) -> None:
        super().__init__()
        self.dropout = Dropout(dropout)
        # x~, f and r, each forward and backward.
        self.project = glorot_linear(inputs, 6 * hidden, bias=False)
        glorot_blocks(self.project.weight, 6)
        self.forget_bias = nn.Parameter(torch.zeros(2 * hidden))
        self.reset_bias = nn.Parameter(torch.zeros(2 * hidden))
        self.carry: nn.Linear | None = None
        if inputs != hidden:
            self.carry = glorot_linear(inputs, 2 * hidden, bias=False)
            glorot_blocks(self.carry.weight, 2)
        self.output_size = 2 * hidden

    def forward(self, embedded: Tensor, valid: Tensor) -> Tensor:
        """See `TokenEncoder`."""
        dropped = self.dropout(embedded)
        candidate, forget, reset = self.project(dropped).chunk(3, -1)  # [M, N, 2D] each
        forget = torch.sigmoid(forget + self.forget_bias)
        reset = torch.sigmoid(reset + self.reset_bias)
        candidate = candidate * valid[..., None]  # padding leaves the backward state at 0
        states = [
            gated_average(x, f, forward=forward)
            for x, f, forward in zip(
                candidate.chunk(2, -1), forget.chunk(2, -1), (True, False), strict=True
            )
        ]
        carried = embedded.repeat(1, 1, 2) if self.carry is None else self.carry(dropped)
        return torch.lerp(carried, torch.cat(states, -1).tanh(), reset)


def _lstm(setup: EncoderSetup, options: Options) -> RecurrentContext:
    return RecurrentContext(nn.LSTM, setup.inputs, setup.hidden, setup.dropout)


def _gru(setup: EncoderSetup, options: Options) -> RecurrentContext:
    return RecurrentContext(nn.GRU, setup.inputs, setup.hidden, setup.dropout)


def _sru(setup: EncoderSetup, options: Options) -> SRUContext:
    return SRUContext(setup.inputs, setup.hidden, setup.dropout)


_CAPABILITIES = frozenset({"kept_only", "kernels"})

BILSTM = EncoderComponent(
    name="bilstm",
    help="A bidirectional LSTM, then source2token.",
    build=lambda setup, options: PooledEncoder.over(_lstm(setup, options), setup),
    context=_lstm,
    capabilities=_CAPABILITIES,
    source="Graves et al., ASRU 2013",
)

BIGRU = EncoderComponent(
    name="bigru",
    help="A bidirectional GRU, then source2token.",
    build=lambda setup, options: PooledEncoder.over(_gru(setup, options), setup),
    context=_gru,
    capabilities=_CAPABILITIES,
    source="Chung et al., 2014",
)

BISRU = EncoderComponent(
    name="bisru",
    help="A bidirectional simple recurrent unit, then source2token.",
    build=lambda setup, options: PooledEncoder.over(_sru(setup, options), setup),
    context=_sru,
    capabilities=_CAPABILITIES,
    source="Lei and Zhang, 2017",
)
