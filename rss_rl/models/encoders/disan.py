"""DiSAN: directional self-attention among all tokens, then source2token.

Legend: M sentences, N tokens, R tokens of all sentences, E embedding size, D hidden.
Source: Shen et al., DiSAN (AAAI 2018), section 4.
"""

from __future__ import annotations

__all__ = ["DISAN", "DiSA", "DiSANEncoder", "DiSANOptions", "disa"]

from collections.abc import Sequence

from pydantic import Field
from torch import Tensor, nn

from rss_rl.components import Options
from rss_rl.models.directional import DirectionalAttention, all_tokens, each_of, fused, whole_packed
from rss_rl.models.encoders.pooled import source2token
from rss_rl.models.encoders.protocol import EncoderComponent, EncoderSetup
from rss_rl.models.layers import Source2Token
from rss_rl.ops.attention import KernelBackend
from rss_rl.ops.gated import union
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
        backend: KernelBackend = "eager",
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
        self._backend: KernelBackend = backend
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


class DiSANEncoder(nn.Module):
    """DiSA of the selected tokens, then source2token."""

    reads_unselected = False
    shares_rows = False

    def __init__(self, context: DiSA, pool: Source2Token) -> None:
        super().__init__()
        self.context, self.pool = context, pool
        self.output_size = context.output_size

    def forward(self, embedded: Tensor, valid: Tensor, selection: Tensor) -> Tensor:
        """See `Encoder`."""
        return self.pool(self.context(embedded, valid), valid)  # type: ignore[no-any-return]

    def packs(self, values: Tensor) -> bool:
        """See `PackedEncoder`."""
        return self.context.packs(values) and self.pool.packs(values)

    def packed(self, words: Rows, tokens: Packed, roles: Tensor) -> Tensor:
        """See `PackedEncoder`."""
        return self.pool.packed(Rows(self.context.packed(words, tokens)), tokens)

    def gated(self, embedded: Tensor, valid: Tensor, gates: Tensor) -> Tensor:
        """See `GatedEncoder`."""
        either = union(gates)
        return self.pool.gated(self.context.gated(embedded, valid, either), either)

    def attending(self, selection: Tensor) -> tuple[Sequence[DirectionalAttention], Tensor]:
        """See `AttendingEncoder`: of the tokens that are left each is head and dependent."""
        return list(each_of(self.context.directions)), selection.any(0).expand(2, -1)


class DiSANOptions(Options):
    """Of DiSAN, and of encoders that fuse context as it does."""

    attention_error: float | None = Field(
        default=None,
        gt=0,
        lt=1,
        description="Error that attention may have, relative to the largest value of a feature, for"
        " time in proportion to the length of long texts; null: exact.",
    )


def disa(setup: EncoderSetup, options: DiSANOptions) -> DiSA:
    """Directional self-attention over words or whole sentences, all of them selected."""
    return DiSA(
        setup.inputs,
        setup.hidden,
        activation=setup.activation,
        dropout=setup.dropout,
        scale=setup.tanh_scale,
        backend=setup.backend,
        error=options.attention_error,
    )


def _build(setup: EncoderSetup, options: DiSANOptions) -> DiSANEncoder:
    context = disa(setup, options)
    return DiSANEncoder(context, source2token(setup, context.output_size))


def _capabilities(options: DiSANOptions) -> frozenset[str]:
    known = {"gates", "kept_only", "kernels", "feature_attention", "onnx"}
    return frozenset(known if options.attention_error is None else known | {"linear_time"})


DISAN = EncoderComponent(
    name="disan",
    help="Feature-wise attention of each selected token to those before and behind it.",
    build=_build,
    context=disa,
    options=DiSANOptions,
    capabilities=_capabilities,
    source="Shen et al., DiSAN, AAAI 2018",
)
