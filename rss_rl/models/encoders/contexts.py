"""Context layers by the name of the encoder they belong to, over words or whole sentences.

Legend: M sequences, N positions, E features that come in.
"""

from __future__ import annotations

__all__ = ["NoContext", "build_context"]

from collections.abc import Callable, Mapping

from torch import Tensor, nn

from rss_rl.config import ModelConfig
from rss_rl.errors import ConfigError
from rss_rl.models.attention_choice import attention_backend
from rss_rl.models.encoders.convolution import GatedConvolutions
from rss_rl.models.encoders.disan import DiSA
from rss_rl.models.encoders.multi_head import MultiHeadContext
from rss_rl.models.encoders.protocol import TokenEncoder
from rss_rl.models.encoders.recurrent import RecurrentContext, SRUContext
from rss_rl.models.mblosa import BlockContext


class NoContext(nn.Module):
    """Each position as it is: of the encoders whose positions exchange nothing."""

    def __init__(self, output_size: int) -> None:
        super().__init__()
        self.output_size = output_size

    def forward(self, embedded: Tensor, valid: Tensor) -> Tensor:
        """See `TokenEncoder`."""
        return embedded


def build_context(config: ModelConfig, inputs: int) -> TokenEncoder:
    """The context layer of the configured encoder, reading `inputs` features.

    That of ReSAN is DiSAN's: a selection is of words, so where it is not given all are selected.

    Raises:
        ConfigError: an encoder of blocks, and nobody said how long they are.
    """
    return _BUILDERS[config.encoder](config, inputs)


def _none(config: ModelConfig, inputs: int) -> TokenEncoder:
    return NoContext(inputs)


def _disa(config: ModelConfig, inputs: int) -> TokenEncoder:
    return DiSA(
        inputs,
        config.hidden,
        activation=config.activation,
        dropout=config.dropout,
        scale=config.tanh_scale,
        backend=attention_backend(config.attention),
        error=config.attention_error,
    )


def _blocks(config: ModelConfig, inputs: int) -> TokenEncoder:
    if config.block_length is None:
        raise ConfigError(
            "the block length is not known",
            where="model.block_length",
            remedy="Give a number of tokens",
        )
    return BlockContext(
        inputs,
        config.hidden,
        block_length=config.block_length,
        activation=config.activation,
        dropout=config.dropout,
        scale=config.tanh_scale,
        backend=attention_backend(config.attention),
        local=config.block_local,
        across=config.block_global,
    )


def _lstm(config: ModelConfig, inputs: int) -> TokenEncoder:
    return RecurrentContext(nn.LSTM, inputs, config.hidden, config.dropout)


def _gru(config: ModelConfig, inputs: int) -> TokenEncoder:
    return RecurrentContext(nn.GRU, inputs, config.hidden, config.dropout)


def _sru(config: ModelConfig, inputs: int) -> TokenEncoder:
    return SRUContext(inputs, config.hidden, config.dropout)


def _convolutions(config: ModelConfig, inputs: int) -> TokenEncoder:
    return GatedConvolutions(
        inputs,
        config.hidden,
        layers=config.cnn_layers,
        window=config.cnn_window,
        dropout=config.dropout,
    )


def _multi_head(config: ModelConfig, inputs: int) -> TokenEncoder:
    return MultiHeadContext(inputs, 2 * config.hidden, config.attention_heads, config.dropout)


_BUILDERS: Mapping[str, Callable[[ModelConfig, int], TokenEncoder]] = {
    "resan": _disa,
    "disan": _disa,
    "bilstm": _lstm,
    "bigru": _gru,
    "bisru": _sru,
    "cnn": _none,  # its windows end in one maximum for the whole sequence
    "hierarchical-cnn": _convolutions,
    "multi-head": _multi_head,
    "biblosan": _blocks,
    "source2token": _none,
    "attention": _none,
    "mean": _none,
}
