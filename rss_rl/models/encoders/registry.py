"""Encoders by the name that a configuration gives."""

from __future__ import annotations

__all__ = ["build_encoder"]

from collections.abc import Callable, Mapping

from torch import nn

from rss_rl.config import ModelConfig
from rss_rl.errors import ConfigError
from rss_rl.models.encoders.basic import MeanEncoder, Source2TokenEncoder
from rss_rl.models.encoders.convolution import GatedConvolutions, WindowsEncoder
from rss_rl.models.encoders.disan import DiSA
from rss_rl.models.encoders.multi_head import MultiHeadContext
from rss_rl.models.encoders.pooled import PooledEncoder
from rss_rl.models.encoders.protocol import Encoder, TokenEncoder
from rss_rl.models.encoders.recurrent import RecurrentContext, SRUContext
from rss_rl.models.encoders.resan import ReSANEncoder
from rss_rl.models.layers import Source2Token
from rss_rl.models.mblosa import BlockContext
from rss_rl.models.resa import ReSA


def build_encoder(config: ModelConfig, inputs: int) -> Encoder:
    """The encoder of a configuration, reading embeddings of size `inputs`.

    Raises:
        ConfigError: an encoder of blocks, and nobody said how long they are.
    """
    return _BUILDERS[config.encoder](config, inputs)


def _pool(config: ModelConfig, size: int) -> Source2Token:
    return Source2Token(size, config.activation, config.dropout)


def _mean(config: ModelConfig, inputs: int) -> Encoder:
    return MeanEncoder(inputs)


def _source2token(config: ModelConfig, inputs: int) -> Encoder:
    return Source2TokenEncoder(_pool(config, inputs), inputs)


def _attention(config: ModelConfig, inputs: int) -> Encoder:
    pool = Source2Token(inputs, config.activation, config.dropout, by_feature=False)
    return Source2TokenEncoder(pool, inputs)


def _biblosan(config: ModelConfig, inputs: int) -> Encoder:
    if config.block_length is None:
        raise ConfigError(
            "the block length is not known",
            where="model.block_length",
            remedy="Give a number of tokens",
        )
    context = BlockContext(
        inputs,
        config.hidden,
        block_length=config.block_length,
        activation=config.activation,
        dropout=config.dropout,
        scale=config.tanh_scale,
        local=config.block_local,
        across=config.block_global,
    )
    return PooledEncoder(context, _pool(config, context.output_size))


def _resan(config: ModelConfig, inputs: int) -> Encoder:
    resa = ReSA(
        inputs,
        config.hidden,
        activation=config.activation,
        dropout=config.dropout,
        scale=config.tanh_scale,
        keep_unselected=config.keep_unselected,
        unselected_context=config.unselected_context,
    )
    return ReSANEncoder(
        resa,
        _pool(config, 2 * config.hidden),
        hidden=config.hidden,
        reads_unselected=config.keep_unselected,
    )


def _pooled(config: ModelConfig, context: TokenEncoder) -> Encoder:
    return PooledEncoder(context, _pool(config, context.output_size))


def _disan(config: ModelConfig, inputs: int) -> Encoder:
    context = DiSA(
        inputs,
        config.hidden,
        activation=config.activation,
        dropout=config.dropout,
        scale=config.tanh_scale,
    )
    return _pooled(config, context)


def _bilstm(config: ModelConfig, inputs: int) -> Encoder:
    return _pooled(config, RecurrentContext(nn.LSTM, inputs, config.hidden, config.dropout))


def _bigru(config: ModelConfig, inputs: int) -> Encoder:
    return _pooled(config, RecurrentContext(nn.GRU, inputs, config.hidden, config.dropout))


def _bisru(config: ModelConfig, inputs: int) -> Encoder:
    return _pooled(config, SRUContext(inputs, config.hidden, config.dropout))


def _cnn(config: ModelConfig, inputs: int) -> Encoder:
    return WindowsEncoder(
        inputs,
        config.cnn_windows,
        config.cnn_filters,
        activation=config.activation,
        dropout=config.dropout,
    )


def _hierarchical_cnn(config: ModelConfig, inputs: int) -> Encoder:
    context = GatedConvolutions(
        inputs,
        config.hidden,
        layers=config.cnn_layers,
        window=config.cnn_window,
        dropout=config.dropout,
    )
    return _pooled(config, context)


def _multi_head(config: ModelConfig, inputs: int) -> Encoder:
    context = MultiHeadContext(inputs, 2 * config.hidden, config.attention_heads, config.dropout)
    return _pooled(config, context)


_BUILDERS: Mapping[str, Callable[[ModelConfig, int], Encoder]] = {
    "resan": _resan,
    "source2token": _source2token,
    "mean": _mean,
    "disan": _disan,
    "bilstm": _bilstm,
    "bigru": _bigru,
    "bisru": _bisru,
    "cnn": _cnn,
    "hierarchical-cnn": _hierarchical_cnn,
    "multi-head": _multi_head,
    "attention": _attention,
    "biblosan": _biblosan,
}
