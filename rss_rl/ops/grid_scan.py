"""Sums of weights over the first dependents of a sequence: far ones on a grid, near ones in pairs.

With q = 1 / (1 + E F), E = exp(2 x / c) and F = exp(2 v / c), a weight is exp(c tanh((x + v) / c))
= exp(c) exp(-2 c q): a multiplication, an addition, a division and an exp2 for each pair.

Legend: M sequences, J heads, D features, T dependents of a chunk, C chunks of a sequence, N = M C,
R nodes, K = R + T columns: the nodes, then the dependents of the chunk; P rows of H <= T heads.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from rss_rl.ops.chunk_rows import Rows
from rss_rl.ops.interpolation import coefficients, nodes
from rss_rl.ops.temporaries import block_elements

_LARGEST_EXPONENT = 60.0
"""Bound of |2 v / c|: E F stays finite even for the largest E; tanh saturates long before."""


@dataclass(frozen=True)
class Plan:
    """How an attention over some dependents is computed.

    nodes   R
    chunk   T
    dtype   of the sums
    centre  float64 [M, D]  middle of the range of each feature's dependent scores
    half    float64 [M, D]  half its width, bounded below
    """

    nodes: int
    chunk: int
    dtype: torch.dtype
    centre: Tensor
    half: Tensor


class Grid:
    """The nodes of each sequence and feature, and scores relative to them.

    Args:
        plan: for the dependents. scale: c.
    """

    def __init__(self, plan: Plan, scale: float) -> None:
        device = plan.half.device
        self.plan = plan
        self.least = -2.0 * scale / math.log(2.0)  # log2 of the smallest weight
        self.unit = torch.tensor(1 / self.least, dtype=plan.dtype, device=device)
        self.matrix = torch.from_numpy(coefficients(plan.nodes)).to(device)  # [R, R]
        self._scale = scale
        self.nodes = self._factors(torch.from_numpy(nodes(plan.nodes)).to(device))  # [M, D, R]

    def _factors(self, points: Tensor) -> Tensor:
        """E of points in [-1, 1], [..., X] to [M, D, X]."""
        scores = self.plan.half[..., None] * points
        return (scores * (2 / self._scale)).exp().to(self.plan.dtype)

    def head_factors(self, head_scores: Tensor) -> Tensor:
        """F / (-2 c / ln 2) of v [M, J, D], with a row of zeros after the last; [M J + 1, D]."""
        scores = head_scores.detach() + self.plan.centre[:, None]
        bound = _LARGEST_EXPONENT
        factors = scores.mul_(2 / self._scale).clamp_(-bound, bound).exp_().to(self.plan.dtype)
        return F.pad(factors.flatten(0, 1).mul_(self.unit), (0, 0, 0, 1))

    def dependent_factors(self, dependent_scores: Tensor, kept: Tensor) -> tuple[Tensor, Tensor]:
        """u [M, I, D] scaled to [-1, 1], and E of it; both [M, I, D]."""
        half = self.plan.half[:, None]
        offset = dependent_scores.detach() - self.plan.centre[:, None]
        offset.div_(half).masked_fill_(~kept[..., None], 0.0)
        points = offset.to(self.plan.dtype, copy=True)
        return points, offset.mul_(half * (2 / self._scale)).exp_().to(self.plan.dtype)

    def weights(self, heads: Tensor, columns: Tensor) -> tuple[Tensor, Tensor]:
        """-2 c q / ln 2 and the weights exp(-2 c q), both [P, D, H, K].

        Args:
            heads: F / (-2 c / ln 2), [P, D, H]. columns: E, [P, D, K].
        """
        exponents = heads[..., None] * columns[:, :, None]
        exponents = exponents.add_(self.unit).reciprocal_()
        return exponents, exponents.exp2()


class Scan:
    """All dependents in their order, or reversed, cut into chunks.

    Args:
        grid: for them. dependent_scores: u, [M, I, D]. values: h, [M, I, D]. kept: bool [M, I].
        reversed_: start with the last.
    """

    def __init__(
        self, grid: Grid, dependent_scores: Tensor, values: Tensor, kept: Tensor, reversed_: bool
    ) -> None:
        sequences, self._tokens = kept.shape
        self.chunks = max(1, -(-self._tokens // grid.plan.chunk))
        self._grid, self._sequences, self._reversed = grid, sequences, reversed_
        points, factors = grid.dependent_factors(dependent_scores, kept)
        weight = kept[..., None].to(grid.plan.dtype)
        self._kept = kept
        self._points = self._cut(points)  # [N, D, T]
        self._near = self._cut(factors)  # E, [N, D, T]
        count = weight.expand_as(values)
        self._summed = torch.stack([self._cut(values.detach() * weight), self._cut(count)], 2)
        self._far = self._sums_before()  # [N, D, 2, R]

    def _cut(self, values: Tensor) -> Tensor:
        """[M, I, D] to [N, D, T]."""
        chunk = self._grid.plan.chunk
        values = values.flip(1) if self._reversed else values
        padded = F.pad(values, (0, 0, 0, self.chunks * chunk - self._tokens))
        cut = padded.reshape(len(values) * self.chunks, chunk, values.shape[2])
        return cut.transpose(1, 2).to(self._grid.plan.dtype).contiguous()

    def _joined(self, values: Tensor) -> Tensor:
        """[N, D, T] to [M, I, D]; the inverse of `_cut`."""
        whole = values.transpose(1, 2).reshape(self._sequences, -1, values.shape[1])
        whole = whole[:, : self._tokens]
        return whole.flip(1) if self._reversed else whole

    def _sums_before(self) -> Tensor:
        """Sums of L_r(x_i) h_i and of L_r(x_i) over the chunks before each one."""
        own = self._summed.new_empty(*self._summed.shape[:3], self._grid.plan.nodes)
        for part in self._parts():
            basis = _chebyshev(self._points[part], self._grid.plan.nodes)
            own[part] = self._summed[part] @ basis.transpose(-1, -2)
        return self._accumulated(own) @ self._grid.matrix.to(own.dtype)

    def _accumulated(self, own: Tensor) -> Tensor:
        """Sums over the chunks before each one, from each chunk's own sums, [N, ...]."""
        by_sequence = own.view(self._sequences, self.chunks, *own.shape[1:])
        before = torch.zeros_like(by_sequence)
        before[:, 1:] = by_sequence[:, :-1].cumsum(1, dtype=torch.float64)
        return before.flatten(0, 1)

    def _parts(self) -> Iterator[slice]:
        """Slices of chunks whose bases fit in a block."""
        return _blocks(self._points, self._grid.plan.nodes)

    def _pairs(self, rows: Rows) -> Iterator[tuple[Tensor, Tensor, Tensor, Tensor]]:
        """Chunk index, slots, E of the columns and allowed pairs, for a block of rows at a time."""
        chunk, count = self._grid.plan.chunk, self._grid.plan.nodes
        steps = torch.arange(
            -count, chunk, device=rows.chunk_index.device
        )  # nodes are always allowed
        for part in _blocks(self._near, chunk + count, len(rows.chunk_index)):
            chunk_index = rows.chunk_index[part]
            far = self._grid.nodes[chunk_index // self.chunks]
            columns = torch.cat([far, self._near[chunk_index]], -1)  # [P, D, K]
            yield chunk_index, rows.slots[part], columns, steps < rows.limit[part][..., None]

    def forward(self, factors: Tensor, rows: Rows, moments: Tensor) -> None:
        """Add each head's sums of w h and of w to `moments` [M J + 1, 2, D].

        Args:
            factors: of the heads, [M J + 1, D]. rows: of the heads.
        """
        for chunk_index, slots, columns, allowed in self._pairs(rows):
            _, weights = self._grid.weights(_heads(factors, slots), columns)
            weights *= allowed[:, None]
            summed = torch.cat(
                [self._far[chunk_index], self._summed[chunk_index]], -1
            )  # [P, D, 2, K]
            found = summed @ weights.transpose(-1, -2)  # [P, D, 2, H]
            moments.index_add_(0, slots.flatten(), found.permute(0, 3, 2, 1).flatten(0, 1))

    def backward(
        self, factors: Tensor, rows: Rows, flow: Tensor, by_head: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Gradients of u and h, [M, I, D]; that of v is added to `by_head` [M J + 1, D].

        Args:
            flow: gradient of the sums of `forward`, [M J + 1, 2, D].
        """
        by_far, by_near = torch.zeros_like(self._far), torch.zeros_like(self._summed[:, :, 0])
        by_point, count = torch.zeros_like(self._near), self._grid.plan.nodes
        for chunk_index, slots, columns, allowed in self._pairs(rows):
            exponents, weights = self._grid.weights(_heads(factors, slots), columns)
            weights *= allowed[:, None]
            into = flow[slots].permute(0, 3, 2, 1).contiguous()  # [P, D, 2, H]
            summed = torch.cat([self._far[chunk_index], self._summed[chunk_index]], -1)
            by_summed = into @ weights  # [P, D, 2, K]
            by_far.index_add_(0, chunk_index, by_summed[..., :count])
            by_near.index_add_(0, chunk_index, by_summed[:, :, 0, count:])
            slope = (into.transpose(-1, -2) @ summed).mul_(weights)  # [P, D, H, K]
            share = exponents.div_(self._grid.least)  # q
            slope.mul_(share).mul_(share.neg_().add_(1.0)).mul_(4.0)  # d log w / ds = 4 q (1 - q)
            by_head.index_add_(0, slots.flatten(), slope.sum(-1).transpose(1, 2).flatten(0, 1))
            by_point.index_add_(0, chunk_index, slope[..., count:].sum(-2))
        return self._through_grid(by_far, by_point, by_near)

    def _through_grid(
        self, by_far: Tensor, by_score: Tensor, by_value: Tensor
    ) -> tuple[Tensor, Tensor]:
        """The gradients including what flows through the sums on the grid."""
        later = self._accumulated_after(by_far) @ self._grid.matrix.T.to(by_far.dtype)
        half = self._grid.plan.half.repeat_interleave(self.chunks, 0)[..., None]  # [N, D, 1]
        for part in self._parts():
            basis = _chebyshev(self._points[part], self._grid.plan.nodes)
            slopes = _chebyshev_slopes(self._points[part], basis)
            by_value[part] += (later[part, :, :1] @ basis)[:, :, 0]
            moved = ((later[part] @ slopes) * self._summed[part]).sum(2)  # [., D, T]
            by_score[part] += (moved / half[part]).to(by_score.dtype)
        return self._joined(by_score), self._joined(by_value) * self._kept[..., None]

    def _accumulated_after(self, own: Tensor) -> Tensor:
        """Sums over the chunks after each one."""
        return self._turned(self._accumulated(self._turned(own)))

    def _turned(self, own: Tensor) -> Tensor:
        """The chunks of each sequence in the reverse order."""
        return own.view(self._sequences, self.chunks, *own.shape[1:]).flip(1).flatten(0, 1)


def _heads(factors: Tensor, slots: Tensor) -> Tensor:
    """[M J + 1, D] at [P, H] to [P, D, H]."""
    return factors[slots].transpose(1, 2).contiguous()


def _blocks(chunks: Tensor, columns: int, rows: int | None = None) -> Iterator[slice]:
    """Slices of the chunks [N, D, T], or of so many rows, that fit in a block of `columns` each."""
    step = max(1, block_elements(chunks.device) // max(1, math.prod(chunks.shape[1:]) * columns))
    for start in range(0, len(chunks) if rows is None else rows, step):
        yield slice(start, start + step)


def _chebyshev(points: Tensor, count: int) -> Tensor:
    """T_k(x) = 2 x T_{k-1} - T_{k-2}, k < R; [N, D, T] to [N, D, R, T]."""
    basis = points.new_ones(count, *points.shape)  # R first: each step writes one run of memory
    if count > 1:
        basis[1] = points
    twice = 2 * points
    for k in range(2, count):
        torch.mul(twice, basis[k - 1], out=basis[k]).sub_(basis[k - 2])
    return basis.permute(1, 2, 0, 3)


def _chebyshev_slopes(points: Tensor, basis: Tensor) -> Tensor:
    """T_k'(x) = 2 T_{k-1} + 2 x T_{k-1}' - T_{k-2}', [N, D, R, T], where `basis` is T_k(x)."""
    by_order = basis.permute(2, 0, 1, 3)
    slopes = torch.zeros_like(by_order)
    slopes[1:2] = 1
    twice = 2 * points
    for k in range(2, len(slopes)):
        torch.mul(twice, slopes[k - 1], out=slopes[k]).sub_(slopes[k - 2])
        slopes[k].add_(by_order[k - 1], alpha=2)
    return slopes.permute(1, 2, 0, 3)
