"""An encoder of convolutions whose reach doubles from layer to layer."""

from __future__ import annotations

import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from rss_rl.components import Options
from rss_rl.models.dropout import Dropout
from rss_rl.models.encoders.encoder import EncoderComponent, EncoderSetup


class DilatedOptions(Options):
    """The stack of layers."""

    layers: int = Field(default=3, ge=1, le=10, description="Layer l looks 2^l tokens ahead.")


class DilatedEncoder(nn.Module):
    """x <- x + elu(conv_l(x)), l = 0 .. layers - 1; the mean over the tokens."""

    reads_unselected = False  # the caller removes unselected tokens before

    def __init__(self, setup: EncoderSetup, options: DilatedOptions) -> None:
        super().__init__()
        self.output_size = setup.hidden
        self.first = nn.Linear(setup.inputs, setup.hidden)
        self.drop = Dropout(setup.dropout)  # the same draws, whoever computes
        self.layers = nn.ModuleList(
            nn.Conv1d(setup.hidden, setup.hidden, 3, padding=2**layer, dilation=2**layer)
            for layer in range(options.layers)
        )

    def forward(self, embedded: Tensor, valid: Tensor, selection: Tensor) -> Tensor:
        """[M, N, E], bool [M, N], bool [M, 2, N] to [M, hidden]."""
        real = valid[:, None].to(embedded.dtype)  # [M, 1, N]
        state = self.first(self.drop(embedded)).transpose(1, 2) * real
        if not valid.shape[1]:
            return state.new_zeros(len(valid), self.output_size)
        for layer in self.layers:
            state = (state + F.elu(layer(state))) * real  # padding stays 0
        return state.sum(2) / real.sum(2).clamp_min(1)


DILATED = EncoderComponent(
    name="dilated", help="Dilated convolutions with residuals, and the mean of the tokens.",
    build=DilatedEncoder, options=DilatedOptions,
    capabilities=frozenset({"kept_only"}), source="Yu and Koltun, ICLR 2016",
)  # fmt: skip
