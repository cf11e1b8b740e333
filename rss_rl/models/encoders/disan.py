"""DiSAN's context: directional self-attention among all tokens.

Legend: M sentences, N tokens, R tokens of all sentences, E embedding size, D hidden.
Source: Shen et al., DiSAN (AAAI 2018), section 4.
"""

from __future__ import annotations

__all__ = ["DiSA"]

from torch import Tensor, nn

from rss_rl.models.directional import DirectionalAttention, all_tokens, each_of, fused, whole_packed
from rss_rl.ops.attention import Backend
from rss_rl.ops.packing import Packed, Rows


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
        self._backend: Backend = backend
        self.output_size = 2 * hidden

    def forward(self, embedded: Tensor, valid: Tensor) -> Tensor:
        """See `TokenEncoder`."""
        tokens = all_tokens(valid)
        outputs = [
            direction.whole(embedded, tokens, tokens) for direction in each_of(self.directions)
        ]
        return fused(outputs, self._backend)

    def packs(self, values: Tensor) -> bool:
        """`packed` can take what is computed of `values`."""
        return all(direction.packs(values) for direction in each_of(self.directions))

    def packed(self, words: Rows, tokens: Packed) -> Tensor:
        """`forward` of rows, [R, 2D]."""
        return whole_packed(list(each_of(self.directions)), words, tokens)

    def gated(self, embedded: Tensor, valid: Tensor, gates: Tensor) -> Tensor:
        """Contexts in which each token's weight is multiplied by its gate [M, N]; [M, N, 2D]."""
        outputs = []
        for direction in each_of(self.directions):
            hidden = direction.project(embedded)  # [M, N, D]
            outputs.append(direction.fuse(hidden, direction.gated_context(hidden, valid, gates)))
        return fused(outputs, self._backend)
