"""Layers shared by encoders and heads.

Legend: M sentences, N tokens, E embedding size, D features.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rss_rl.models.dropout import Dropout, packed_rows
from rss_rl.ops.attention import KernelBackend
from rss_rl.ops.gated import gated_softmax
from rss_rl.ops.linear_maps import has_kernels, linear_maps, pays_kernels
from rss_rl.ops.matmul import pad_rows
from rss_rl.ops.packing import Packed, WordRows
from rss_rl.ops.pooling import feature_wise_pooling, packed_pooling, packed_shared_pooling


def activation_function(name: str) -> Callable[[Tensor], Tensor]:
    """The activation called `name`: `relu` or `elu`."""
    known: dict[str, Callable[[Tensor], Tensor]] = {"relu": F.relu, "elu": F.elu}
    return known[name]


class _Linear(nn.Linear):
    """A linear layer whose product may run in lower precision but whose result does not."""

    def __init__(self, inputs: int, outputs: int, *, bias: bool, backend: KernelBackend) -> None:
        super().__init__(inputs, outputs, bias=bias)
        self._backend: KernelBackend = backend

    def forward(self, values: Tensor) -> Tensor:
        return linear(values, self.weight, self.bias, self._backend)


def linear(values: Tensor, weight: Tensor, bias: Tensor | None, backend: KernelBackend) -> Tensor:
    """W x + b in the type of W, [..., inputs] to [..., outputs], by one of the backends."""
    if torch.is_autocast_enabled("cpu"):  # in full precision torch's own takes one pass, too
        if has_kernels(values, backend):
            return linear_maps(values, [weight], [bias])[0]
        if values.ndim == 2 and values.device.type == "cpu":
            return F.linear(pad_rows(values), weight, bias)[: len(values)].to(weight.dtype)
    return F.linear(values, weight, bias).to(weight.dtype)


def glorot_linear(
    inputs: int, outputs: int, *, bias: bool = True, backend: KernelBackend = "eager"
) -> nn.Linear:
    """A linear layer with Glorot-uniform weights and zero bias.

    Under autocast only the matrix product runs in the lower precision: sums, gates and softmaxes
    stay in that of the weights.
    """
    layer = _Linear(inputs, outputs, bias=bias, backend=backend)
    nn.init.xavier_uniform_(layer.weight)
    if bias:
        nn.init.zeros_(layer.bias)
    return layer


def glorot_blocks(weight: Tensor, blocks: int) -> None:
    """Initialise each of the `blocks` matrices stacked in `weight` on its own."""
    for block in weight.chunk(blocks):
        nn.init.xavier_uniform_(block)


class Dense(nn.Module):
    """activation(W dropout(a) + b) over the last dimension."""

    def __init__(
        self,
        inputs: int,
        outputs: int,
        activation: str,
        dropout: float,
        backend: KernelBackend = "eager",
    ) -> None:
        super().__init__()
        self.linear = glorot_linear(inputs, outputs)
        self.dropout = Dropout(dropout)
        self.activation = activation
        self._activation = activation_function(activation)
        self._backend: KernelBackend = backend

    def forward(self, values: Tensor) -> Tensor:
        """[..., inputs] to [..., outputs]."""
        if not pays_kernels(values, self._backend):
            return self._activation(self.linear(self.dropout(values)))
        drop, weight, bias = self.dropout.keyed(values), self.linear.weight, self.linear.bias
        inputs = values if drop is not None else self.dropout(values)
        return linear_maps(inputs, [weight], [bias], activation=self.activation, drop=drop)[0]


class Highway(nn.Module):
    """g * Dense(v) + (1 - g) * v with g = sigmoid(W v + b) (Srivastava et al. 2015)."""

    def __init__(
        self, size: int, activation: str, dropout: float, backend: KernelBackend = "eager"
    ) -> None:
        super().__init__()
        self.transform = Dense(size, size, activation, dropout, backend)
        self.gate = glorot_linear(size, size, backend=backend)

    def forward(self, values: Tensor) -> Tensor:
        """[..., size] to [..., size]."""
        return torch.lerp(values, self.transform(values), torch.sigmoid(self.gate(values)))


class Source2Token(nn.Module):
    """Compression of a sequence by feature-wise attention without a query.

    f(x_i) = W2 sigma(W1 x_i + b1) + b2; P = softmax over kept tokens for each feature;
    e = sum_i P_i * x_i. Source: Shen et al., DiSAN, section 3.2.

    Args:
        by_feature: False = one weight for all features of a token, f(x_i) is a scalar: vanilla
            attention without a query.
    """

    def __init__(
        self,
        size: int,
        activation: str,
        dropout: float,
        *,
        by_feature: bool = True,
        backend: KernelBackend = "eager",
    ) -> None:
        super().__init__()
        self._backend: KernelBackend = backend
        self._by_feature = by_feature
        self.hidden = Dense(size, size, activation, dropout, backend)
        self.score = glorot_linear(size, size if by_feature else 1, backend=backend)

    def forward(self, values: Tensor, kept: Tensor) -> Tensor:
        """[M, ..., N, D] with kept bool [M, ..., N] to [M, ..., D]; zeros where nothing is kept."""
        flat = self.scores(values).flatten(0, -3), values.flatten(0, -3), kept.flatten(0, -2)
        pooled = feature_wise_pooling(*flat, self._backend)
        return pooled.view(*values.shape[:-2], values.shape[-1])

    def scores(self, values: Tensor) -> Tensor:
        """f of each token, [M, ..., N, D or 1]."""
        return self.score(self.hidden(values))  # type: ignore[no-any-return]

    def packed(self, rows: WordRows, tokens: Packed) -> Tensor:
        """`forward` of rows that are all kept, with D features, to [M, D]."""
        with packed_rows(tokens):
            scores = rows.spread(self.scores(rows.vectors))
        return packed_pooling(scores, rows.spread(rows.vectors), tokens, self._backend)

    def packed_shared(
        self, rows: Tensor, cells: Tensor, tokens: Packed, times: int, common: Tensor
    ) -> Tensor:
        """`packed` of sequences that share all rows but their own; see `packed_shared_pooling`.

        Args:
            rows: [T, D]. common: [R, D].
        """
        chosen, others = (self.scores(rows), rows), (self.scores(common), common)
        return packed_shared_pooling(chosen, cells, tokens, times, others, self._backend)

    def gated(self, values: Tensor, gates: Tensor) -> Tensor:
        """[M, N, D] with gates [M, N] that multiply the weights; [M, D]."""
        weights = gated_softmax(self.scores(values), gates)
        return (weights * values).sum(-2)
