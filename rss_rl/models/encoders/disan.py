"""DiSAN's context: directional self-attention among all tokens.

Legend: M sentences, N tokens, E embedding size, D hidden.
Source: Shen et al., DiSAN (AAAI 2018), section 4.
"""

from __future__ import annotations

__all__ = ["DiSA"]

import torch
from torch import Tensor, nn

from rss_rl.models.directional import DirectionalAttention, all_tokens
from rss_rl.ops.attention import Backend


class DiSA(nn.Module):
    """ReSA with every token selected, without the mean context of others.

    Args:
        inputs: E. hidden: D.
        activation, dropout, scale, backend, error: see `DirectionalAttention`.
    """

    def __init__(
        self,
        inputs: int,
        hidden: int,
        *,
        activation: str,
        dropout: float,
        scale: float,
        backend: Backend = "eager",
        error: float | None = None,
    ) -> None:
        super().__init__()
        self.directions = nn.ModuleList(
            DirectionalAttention(
                inputs,
                hidden,
                forward=forward,
                activation=activation,
                dropout=dropout,
                scale=scale,
                backend=backend,
                error=error,
            )
            for forward in (True, False)
        )
        self.output_size = 2 * hidden

    def forward(self, embedded: Tensor, valid: Tensor) -> Tensor:
        """See `TokenEncoder`."""
        tokens = all_tokens(valid)
        outputs = []
        for direction in self.directions:
            assert isinstance(direction, DirectionalAttention)
            outputs.append(direction.whole(embedded, tokens, tokens))
        return torch.cat(outputs, -1)

    def gated(self, embedded: Tensor, valid: Tensor, gates: Tensor) -> Tensor:
        """Contexts in which each token's weight is multiplied by its gate [M, N]; [M, N, 2D]."""
        outputs = []
        for direction in self.directions:
            assert isinstance(direction, DirectionalAttention)
            hidden = direction.project(embedded)  # [M, N, D]
            outputs.append(direction.fuse(hidden, direction.gated_context(hidden, valid, gates)))
        return torch.cat(outputs, -1)
