"""Bi-BloSAN: masked block self-attention in both directions, then source2token.

Source: Shen et al., Bi-directional Block Self-Attention (ICLR 2018); block length: appendix A.
"""

from __future__ import annotations

import math

from pydantic import Field, model_validator

from rss_rl.components import Options
from rss_rl.errors import ConfigError
from rss_rl.models.encoders.pooled import PooledEncoder
from rss_rl.models.encoders.protocol import EncoderComponent, EncoderSetup
from rss_rl.models.mblosa import BlockContext, BlockSettings

_SENTENCES = 4
"""Sentences of a block, in tasks on passages."""


class _BiBloSANOptions(Options):
    block_length: int | None = Field(
        default=None,
        ge=1,
        description="Tokens of a block; null: by the paper's rule, from the lengths of the training"
        " sentences and the batch size.",
    )
    local: bool = Field(default=True, description="Tokens have the context within their block.")
    across: bool = Field(default=True, description="Tokens have the context of other blocks.")

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
        setup.tanh_scale,
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
