"""Convolutions over the tokens: windows of several lengths, or layers of one.

Legend: M sentences, N tokens, E embedding size, D hidden, F filters.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from rss_rl.components import Options
from rss_rl.models.dropout import Dropout
from rss_rl.models.encoders.encoder import EncoderComponent, EncoderSetup
from rss_rl.models.encoders.pooled import PooledEncoder
from rss_rl.models.layers import activation_function, glorot_linear


def _glorot_convolution(inputs: int, filters: int, window: int) -> nn.Conv1d:
    layer = nn.Conv1d(inputs, filters, window)
    nn.init.xavier_uniform_(layer.weight)
    assert layer.bias is not None
    nn.init.zeros_(layer.bias)
    return layer


class WindowsEncoder(nn.Module):
    """Largest response of each filter over all windows of w tokens, for several w (Kim 2014).

    s = [max_i sigma(W_w [x_i; ...; x_{i+w-1}] + b_w)]_w over all windows with a token in them,
    zeros around the sentence, as in the author's code: each token meets each position of a filter.
    With windows only inside the sentence, the words at its ends would count for little.

    Args:
        inputs: E. windows: each w. filters: F of each window. activation: sigma.
        dropout: rate on the input.
    """

    reads_unselected = False

    def __init__(
        self, inputs: int, windows: Sequence[int], filters: int, *, activation: str, dropout: float
    ) -> None:
        super().__init__()
        self.dropout = Dropout(dropout)
        self.convolutions = nn.ModuleList(
            _glorot_convolution(inputs, filters, window) for window in windows
        )
        self._windows = tuple(windows)
        self._activation = activation_function(activation)
        self.output_size = filters * len(self._windows)

    def forward(self, embedded: Tensor, valid: Tensor, selection: Tensor) -> Tensor:
        """See `Encoder`."""
        lengths = valid.sum(1)  # [M]
        inputs = (self.dropout(embedded) * valid[..., None]).transpose(1, 2)  # [M, E, N]
        features = []
        for window, convolution in zip(self._windows, self.convolutions, strict=True):
            around = window - 1
            responses = convolution(F.pad(inputs, (around, around)))  # [M, F, N + w - 1]
            first = torch.arange(responses.shape[2], device=valid.device)
            within = first < (lengths + around).clamp_min(1)[:, None]
            features.append(torch.where(within[:, None], responses, -torch.inf).amax(2))
        # The activation is monotonic, so it may follow the maximum.
        vectors = self._activation(torch.cat(features, 1).to(embedded.dtype))
        return vectors * (lengths > 0)[:, None]


class GatedConvolutions(nn.Module):
    """Layers x + GLU(convolution(x)) over the tokens (Gehring et al. 2017).

    GLU([a; b]) = a * sigmoid(b) (Dauphin et al. 2016). Every layer pads a sentence with zeros.
    Embeddings pass a linear map first if E and D differ.

    Args:
        inputs: E. hidden: D. layers: how many. window: tokens of a layer's window.
        dropout: rate on the input of each layer.
    """

    def __init__(
        self, inputs: int, hidden: int, *, layers: int, window: int, dropout: float
    ) -> None:
        super().__init__()
        self.entry = nn.Identity() if inputs == hidden else glorot_linear(inputs, hidden)
        self.convolutions = nn.ModuleList(
            _glorot_convolution(hidden, 2 * hidden, window) for _ in range(layers)
        )
        self.dropout = Dropout(dropout)
        self._window = window
        self.output_size = hidden

    def forward(self, embedded: Tensor, valid: Tensor) -> Tensor:
        """See `TokenEncoder`."""
        tokens = valid.shape[1]
        before, behind = (self._window - 1) // 2, self._window // 2
        values: Tensor = self.entry(embedded).transpose(1, 2)  # [M, D, N]
        for convolution in self.convolutions:
            inputs = self.dropout(values) * valid[:, None]
            # A window must fit even if there are no tokens.
            room = F.pad(inputs, (before, behind + (tokens == 0)))
            gated = F.glu(convolution(room)[..., :tokens].to(values.dtype), 1)
            values = values + gated
        return values.transpose(1, 2)


class _WindowsOptions(Options):
    windows: tuple[Annotated[int, Field(ge=1)], ...] = Field(default=(3, 4, 5), min_length=1)
    """Tokens of each window."""
    filters: int = Field(default=200, ge=1)
    """Features of each window."""


class _LayersOptions(Options):
    layers: int = Field(default=3, ge=1)
    """Number of layers."""
    window: int = Field(default=5, ge=1)
    """Tokens of a layer's window."""


def _windows(setup: EncoderSetup, options: _WindowsOptions) -> WindowsEncoder:
    return WindowsEncoder(
        setup.inputs,
        options.windows,
        options.filters,
        activation=setup.activation,
        dropout=setup.dropout,
    )


def _layers(setup: EncoderSetup, options: _LayersOptions) -> GatedConvolutions:
    return GatedConvolutions(
        setup.inputs,
        setup.hidden,
        layers=options.layers,
        window=options.window,
        dropout=setup.dropout,
    )


CNN = EncoderComponent(  # without context: its windows end in one maximum for the whole sequence
    name="cnn",
    help="Largest response of each filter, over windows of several lengths.",
    build=_windows,
    options=_WindowsOptions,
    capabilities=frozenset({"kept_only"}),
    source="Kim, EMNLP 2014",
)

HIERARCHICAL_CNN = EncoderComponent(
    name="hierarchical-cnn",
    help="Layers of gated convolutions with residual connections, then source2token.",
    build=lambda setup, options: PooledEncoder.over(_layers(setup, options), setup),
    context=_layers,
    options=_LayersOptions,
    capabilities=frozenset({"kept_only", "kernels"}),
    source="Gehring et al., ICML 2017",
)
