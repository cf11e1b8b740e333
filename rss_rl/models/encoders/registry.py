"""Encoders by the name that a configuration gives."""

from __future__ import annotations

__all__ = ["build_encoder"]

from collections.abc import Callable, Mapping

from rss_rl.config import ModelConfig
from rss_rl.models.attention_choice import attention_backend
from rss_rl.models.encoders.basic import MeanEncoder, Source2TokenEncoder
from rss_rl.models.encoders.contexts import build_context
from rss_rl.models.encoders.convolution import WindowsEncoder
from rss_rl.models.encoders.disan import DiSA
from rss_rl.models.encoders.pooled import GatedPooledEncoder, PooledEncoder
from rss_rl.models.encoders.protocol import Encoder
from rss_rl.models.encoders.resan import ReSANEncoder
from rss_rl.models.layers import Source2Token
from rss_rl.models.resa import ReSA


def build_encoder(config: ModelConfig, inputs: int) -> Encoder:
    """The encoder of a configuration, reading embeddings of size `inputs`.

    Raises:
        ConfigError: an encoder of blocks, and nobody said how long they are.
    """
    return _BUILDERS.get(config.encoder, _pooled)(config, inputs)


def _pool(config: ModelConfig, size: int) -> Source2Token:
    backend = attention_backend(config.attention)
    return Source2Token(size, config.activation, config.dropout, backend=backend)


def _pooled(config: ModelConfig, inputs: int) -> Encoder:
    """Most encoders: a context layer and source2token over what it returns."""
    context = build_context(config, inputs)
    pool = _pool(config, context.output_size)
    return (
        GatedPooledEncoder(context, pool)
        if isinstance(context, DiSA)
        else PooledEncoder(context, pool)
    )


def _mean(config: ModelConfig, inputs: int) -> Encoder:
    return MeanEncoder(inputs)


def _source2token(config: ModelConfig, inputs: int) -> Encoder:
    return Source2TokenEncoder(_pool(config, inputs), inputs)


def _attention(config: ModelConfig, inputs: int) -> Encoder:
    pool = Source2Token(inputs, config.activation, config.dropout, by_feature=False)
    return Source2TokenEncoder(pool, inputs)


def _windows(config: ModelConfig, inputs: int) -> Encoder:
    return WindowsEncoder(
        inputs,
        config.cnn_windows,
        config.cnn_filters,
        activation=config.activation,
        dropout=config.dropout,
    )


def _resan(config: ModelConfig, inputs: int) -> Encoder:
    resa = ReSA(
        inputs,
        config.hidden,
        activation=config.activation,
        dropout=config.dropout,
        scale=config.tanh_scale,
        keep_unselected=config.keep_unselected,
        unselected_context=config.unselected_context,
        backend=attention_backend(config.attention),
        error=config.attention_error,
    )
    return ReSANEncoder(
        resa,
        _pool(config, 2 * config.hidden),
        hidden=config.hidden,
        reads_unselected=config.keep_unselected,
    )


_BUILDERS: Mapping[str, Callable[[ModelConfig, int], Encoder]] = {
    "resan": _resan,
    "source2token": _source2token,
    "attention": _attention,
    "mean": _mean,
    "cnn": _windows,
}
