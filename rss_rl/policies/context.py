"""Context layers below a policy's token features.

Legend: B sentences, N tokens, E embedding size, D hidden.
Source: Shen et al., Reinforced Self-Attention Network (IJCAI 2018), equation 5: 'a context fusion
layer, e.g. Bi-LSTM, Bi-GRU'.
"""

from __future__ import annotations

__all__ = ["NoContext", "RecurrentContext", "glorot_gates_"]

from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence


def glorot_gates_(weight: Tensor, size: int) -> None:
    """Fill the gates' matrices [G * size, inputs] of a recurrent cell, each Glorot-uniform."""
    for gate in torch.split(weight, size):
        nn.init.xavier_uniform_(gate)


class NoContext(nn.Module):
    """The embedded tokens as they are."""

    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.output_size = inputs

    def forward(self, embedded: Tensor, valid: Tensor) -> Tensor:
        """[B, N, E] to the same."""
        return embedded


class RecurrentContext(nn.Module):
    """A bidirectional LSTM or GRU, outputs concatenated to 2D.

    Args:
        inputs: E. hidden: D, of each direction.
    """

    def __init__(self, kind: Literal["lstm", "gru"], inputs: int, hidden: int) -> None:
        super().__init__()
        layer = {"lstm": nn.LSTM, "gru": nn.GRU}[kind]
        self.layer = layer(inputs, hidden, batch_first=True, bidirectional=True)
        self.output_size = 2 * hidden
        for parameter in self.layer.parameters():
            if parameter.ndim > 1:
                glorot_gates_(parameter.data, hidden)
            else:
                nn.init.zeros_(parameter)

    def forward(self, embedded: Tensor, valid: Tensor) -> Tensor:
        """[B, N, E] and bool [B, N], valid tokens first, to [B, N, 2D]; no token sees padding."""
        sentences, tokens = valid.shape
        if valid.numel() == 0:
            return embedded.new_zeros(sentences, tokens, self.output_size)
        # An empty sentence cannot be packed: it reads a token of padding, of no meaning as all is.
        lengths = valid.sum(1).clamp_min(1).cpu()
        packed = pack_padded_sequence(embedded, lengths, batch_first=True, enforce_sorted=False)
        context, _ = pad_packed_sequence(
            self.layer(packed)[0], batch_first=True, total_length=tokens
        )
        return context.to(embedded.dtype)
