"""Context by recurrence over the tokens, in both directions.

Legend: M sentences, N tokens, E embedding size or other input features, D hidden size of each
direction, H in `Bidirectional`.
Source of the SRU: Lei and Zhang, Training RNNs as Fast as CNNs (2017), equation 5.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from rss_rl.components import Options
from rss_rl.models.dropout import Dropout
from rss_rl.models.encoders.encoder import EncoderComponent, EncoderSetup
from rss_rl.models.encoders.pooled import PooledEncoder
from rss_rl.models.layers import glorot_blocks, glorot_linear
from rss_rl.ops.masking import gather


def _recurs_in_float32(device: torch.device) -> bool:
    """Whether autocast requests a precision in which torch has no LSTM here.

    On processors without AVX-512, oneDNN raises an error for bfloat16.
    """
    rounded = device.type == "cpu" and torch.is_autocast_enabled("cpu")
    return rounded and torch.backends.cpu.get_cpu_capability() in ("DEFAULT", "AVX2")


class Bidirectional(nn.Module):
    """h_i = [forward h_i; backward h_i] of torch's LSTM or GRU, one layer each.

    The backward one reads each sequence from its last token, so that padding comes last there too
    and affects nothing. That is cheaper than torch's packed sequences, with which the gradient of a
    GRU takes O(N^2) time on a CPU.

    Args:
        cell: `nn.LSTM` or `nn.GRU`. inputs: E. hidden: H.
    """

    def __init__(self, cell: type[nn.LSTM] | type[nn.GRU], inputs: int, hidden: int) -> None:
        super().__init__()
        self.ahead = cell(inputs, hidden, batch_first=True)
        self.back = cell(inputs, hidden, batch_first=True)
        self.output_size = 2 * hidden
        for parameter in self.parameters():
            if parameter.ndim == 1:
                nn.init.zeros_(parameter)

    def matrices(self) -> list[nn.Parameter]:
        """The weights without the biases, which are 0; a matrix holds those of all gates."""
        return [parameter for parameter in self.parameters() if parameter.ndim == 2]

    def forward(self, values: Tensor, valid: Tensor) -> Tensor:
        """[M, N, E] and bool [M, N] (valid tokens first) to [M, N, 2 H]; zeros on padding."""
        if not valid.numel():
            # Reads one padding token, as every learner of a group must have a gradient of every
            # parameter, even if its shard is empty.
            longer = F.pad(values, (0, 0, 0, 1, 0, 1))
            read = self(longer, valid.new_zeros(longer.shape[:2]))
            return read[: len(valid), : valid.shape[1]]  # type: ignore[no-any-return]
        last = valid.sum(1, keepdim=True) - 1
        turned = (last - torch.arange(valid.shape[1], device=valid.device)).clamp_min(0)  # [M, N]
        dtype, back = values.dtype, gather(values, turned)
        if _recurs_in_float32(values.device):
            with torch.autocast("cpu", enabled=False):
                forward, _ = self.ahead(values.float())
                backward, _ = self.back(back.float())
        else:
            forward, _ = self.ahead(values)
            backward, _ = self.back(back)
        both = torch.cat([forward, gather(backward, turned)], -1)
        return both.to(dtype) * valid[..., None]  # autocast may have lowered the precision


def both_ends(hidden: Tensor, valid: Tensor) -> Tensor:
    """[forward h_n; backward h_1] of a `Bidirectional`, [M, N, 2 H] to [M, 2 H]; 0 if empty."""
    if not valid.shape[1]:
        return hidden.sum(1)
    size = hidden.shape[-1] // 2
    last = (valid.sum(1, keepdim=True) - 1).clamp_min(0)
    return torch.cat([gather(hidden, last)[:, 0, :size], hidden[:, 0, size:]], -1)


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


def gated_average(values: Tensor, forget: Tensor, *, forward: bool) -> Tensor:
    """c_t = f_t * c_{t-1} + (1 - f_t) * x_t over dimension 1, with c_0 = 0.

    Args:
        values: x, [M, N, D].
        forget: f in [0, 1], [M, N, D].
        forward: True = from the first token to the last; False = from the last to the first, where
            zeros in `values` after a sentence's last token leave the state at 0.

    Returns:
        c, [M, N, D].
    """
    return _GatedAverage.apply(values, forget, forward)  # type: ignore[no-any-return, no-untyped-call]


def _steps(tokens: int, *, forward: bool) -> Iterator[tuple[int, int]]:
    """Each token but the first processed, with the one processed before it."""
    order = range(tokens) if forward else range(tokens - 1, -1, -1)
    return zip(order[1:], order, strict=False)


class _GatedAverage(torch.autograd.Function):
    """One in-place multiply-add per token, forward and backward: no autograd graph of N steps."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, forget: Tensor, forward: bool) -> Tensor:
        states = torch.lerp(values, torch.zeros_like(values), forget)  # (1 - f) x
        state_at, forget_at = states.unbind(1), forget.unbind(1)
        for token, before in _steps(values.shape[1], forward=forward):
            state_at[token].addcmul_(forget_at[token], state_at[before])
        ctx.save_for_backward(values, forget, states)
        ctx.looks_back = forward
        return states

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """With g_t = dc_t + f_{t+1} g_{t+1}: dx_t = (1 - f_t) g_t, df_t = (c_{t-1} - x_t) g_t."""
        values, forget, states = ctx.saved_tensors
        flow = gradient.clone(memory_format=torch.contiguous_format)
        flow_at, forget_at = flow.unbind(1), forget.unbind(1)
        for before, token in _steps(values.shape[1], forward=not ctx.looks_back):
            flow_at[before].addcmul_(forget_at[token], flow_at[token])
        earlier = torch.zeros_like(states)
        if ctx.looks_back:
            earlier[:, 1:] = states[:, :-1]
        else:
            earlier[:, :-1] = states[:, 1:]
        by_forget = earlier.sub_(values).mul_(flow)
        return flow.sub_(flow * forget), by_forget, None
