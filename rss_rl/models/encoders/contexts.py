"""Context layers by the name of the encoder they belong to, for sequences that are not of words.

Legend: M sequences, N positions, E features that come in, D hidden.
"""

from __future__ import annotations

__all__ = ["NoContext", "WholeReSA", "build_context"]

from collections.abc import Callable, Mapping

from torch import Tensor, nn

from rss_rl.config import ModelConfig
from rss_rl.models.encoders.protocol import TokenEncoder
from rss_rl.models.resa import ReSA


class WholeReSA(nn.Module):
    """ReSA with every position selected in both roles, which is the context layer of DiSAN."""

    def __init__(self, resa: ReSA, output_size: int) -> None:
        super().__init__()
        self.resa = resa
        self.output_size = output_size

    def forward(self, embedded: Tensor, valid: Tensor) -> Tensor:
        """See `TokenEncoder`."""
        context, _ = self.resa(embedded, valid, valid[:, None].expand(-1, 2, -1))
        return context  # type: ignore[no-any-return]


class NoContext(nn.Module):
    """Each position as it is: of the encoders that let positions exchange nothing."""

    def __init__(self, output_size: int) -> None:
        super().__init__()
        self.output_size = output_size

    def forward(self, embedded: Tensor, valid: Tensor) -> Tensor:
        """See `TokenEncoder`."""
        return embedded


def build_context(config: ModelConfig, inputs: int) -> TokenEncoder:
    """The context layer of the configured encoder, reading `inputs` features.

    That of ReSAN is DiSAN's: selections are of words, so what is not a word is always selected.
    """
    return _BUILDERS[config.encoder](config, inputs)


def _disa(config: ModelConfig, inputs: int) -> TokenEncoder:
    resa = ReSA(
        inputs,
        config.hidden,
        activation=config.activation,
        dropout=config.dropout,
        scale=config.tanh_scale,
        keep_unselected=True,
        unselected_context="real",
    )
    return WholeReSA(resa, 2 * config.hidden)


def _none(config: ModelConfig, inputs: int) -> TokenEncoder:
    return NoContext(inputs)


_BUILDERS: Mapping[str, Callable[[ModelConfig, int], TokenEncoder]] = {
    "resan": _disa,
    "source2token": _none,
    "mean": _none,
}
