"""Triton kernels of feature-wise attention: a program owns a tile of rows and features.

The formulas are those of `kernels/attention.cpp`: a weight is exp(-2 c q), q = 1 / (1 + E_i F_j).
Where E = e^(2u/c) and F = e^(2v/c) would not be exact enough, their tensors hold u and v instead,
and q is computed from the sum, at the cost of a third exponential.

A program's rows are heads in the forward pass and dependents in the backward pass. It accumulates
the other side's contributions sequentially, without atomics, and unpaired tokens add zeros: a row
has the same bits in each run and whatever else is in the batch.

`heads` and `dependents` are int32 positions, [M, J] and [M, I], -1 where none is kept. ORDER says
which others a row is paired with: those "before" it or those "after" it.

Legend: M sequences, J heads, I dependents, D features, SCALE c; a tile has R rows and C features.
Importing this module imports Triton; if TRITON_INTERPRET=1 is set by then, NumPy runs the kernels,
on any device.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

ROWS = tl.constexpr(16)
FEATURES = tl.constexpr(64)
"""R and C: each of a program's 128 threads computes 8 elements per step."""

_SCAN = tl.constexpr(32)
"""Rows read per step where no pairs are computed."""
_BEYOND = tl.constexpr(2**31 - 1)
"""Greater than every position."""
_BASE = tl.constexpr(2.8853900817779268)
"""2 / ln 2: e^(2x) is 2 to the power of this times x."""


@triton.jit
def own_positions(positions, rows, count, ORDER: tl.constexpr):
    """Positions of a tile's rows; a row that is not kept gets one that pairs with nothing."""
    at = tl.load(positions + rows, mask=rows < count, other=-1)
    if ORDER == "after":
        at = tl.where(at >= 0, at, _BEYOND)
    return at


@triton.jit
def paired_with(other, row, ORDER: tl.constexpr):
    """Whether they pair."""
    ordered = other < row
    if ORDER == "after":
        ordered = other > row
    return ordered & (other >= 0)


_PTX = tl.constexpr(isinstance(paired_with, triton.JITFunction) and torch.version.hip is None)
"""Whether the kernels are compiled for NVIDIA devices."""


@triton.jit
def own_tile(rows, features, ORDER: tl.constexpr):
    """This program's sequence, feature tile (counted over all), rows [R] and features [1, C].

    Rows with the most pairs start first, else the device would wait for them at the end.
    """
    tiles = tl.cdiv(rows, ROWS)
    tile = tl.program_id(0) % tiles
    if ORDER == "before":
        tile = tiles - 1 - tile
    part = tl.program_id(0) // tiles
    feature_tiles = tl.cdiv(features, FEATURES)
    columns = part % feature_tiles * FEATURES + tl.arange(0, FEATURES)[None, :]
    sequence = (part // feature_tiles).to(tl.int64)
    return sequence, part, tile * ROWS + tl.arange(0, ROWS), columns


@triton.jit
def reach(rows, others, count, ORDER: tl.constexpr):
    """First, and last + 1, of the others that pair with any of the rows [R]."""
    limit = tl.max(rows, 0)
    if ORDER == "after":
        limit = tl.min(rows, 0)
    first = tl.full([_SCAN], _BEYOND, tl.int32)
    last = tl.zeros([_SCAN], tl.int32)
    for start in range(0, count, _SCAN):
        number = start + tl.arange(0, _SCAN)
        other = tl.load(others + number, mask=number < count, other=-1)
        needed = paired_with(other, limit, ORDER)
        first = tl.minimum(first, tl.where(needed, number, _BEYOND))
        last = tl.maximum(last, tl.where(needed, number + 1, 0))
    return tl.min(first, 0), tl.max(last, 0)


@triton.jit
def _exp2(x):
    if _PTX:
        # Skips exp2's handling of denormal results, which triples the instructions.
        y = tl.inline_asm_elementwise(
            "ex2.approx.ftz.f32 $0, $1;", "=f,f", [x], tl.float32, is_pure=True, pack=1
        )
    else:
        y = tl.exp2(x)
    return y


@triton.jit
def _reciprocal(x):
    if _PTX:
        y = tl.inline_asm_elementwise(
            "rcp.approx.ftz.f32 $0, $1;", "=f,f", [x], tl.float32, is_pure=True, pack=1
        )
    else:
        y = 1.0 / x
    return y


@triton.jit
def weigh(e, f, paired, far, SCALE: tl.constexpr):
    """q and the weight of each pair, [R, C]."""
    divisor = 1.0 + e * f
    if far:
        # Up to 2^126 nothing overflows, and q = 2^-126 gives the same weight as 0.
        divisor = 1.0 + _exp2(tl.minimum((e + f) * (_BASE / SCALE), 126.0))
    q = _reciprocal(divisor)
    return q, tl.where(paired, _exp2(q * (-_BASE * SCALE)), 0.0)


@triton.jit
def largest_score(scores, kept, count, features, columns):
    """Largest |score| of the kept rows in these features."""
    largest = tl.zeros([_SCAN, columns.shape[1]], tl.float32)
    for start in range(0, count, _SCAN):
        rows = start + tl.arange(0, _SCAN)
        read = tl.load(kept + rows, mask=rows < count, other=-1)[:, None] >= 0
        at = scores + rows[:, None] * features + columns
        score = tl.load(at, mask=read & (columns < features), other=0.0)
        largest = tl.maximum(largest, tl.abs(score))
    return tl.max(tl.max(largest, 1), 0)


@triton.jit
def rewrite(scores, results, kept, count, features, columns, SCALE: tl.constexpr, far):
    """e^(2 score / c) of the kept rows, or the score where `far`."""
    for start in range(0, count, _SCAN):
        rows = start + tl.arange(0, _SCAN)
        read = tl.load(kept + rows, mask=rows < count, other=-1)[:, None] >= 0
        at = rows[:, None] * features + columns
        score = tl.load(scores + at, mask=read & (columns < features), other=0.0)
        if not far:
            score = tl.exp(score * (2.0 / SCALE))
        tl.store(results + at, score, mask=(rows[:, None] < count) & (columns < features))


_SIZES = ["count_j", "count_i", "features"]
"""J, I and D; one compiled kernel serves all their values."""


@triton.jit(do_not_specialize=_SIZES)
def prepare_kernel(
    v, u, heads, dependents, f, e, far, count_j, count_i, features, bound, SCALE: tl.constexpr
):
    """F and E of a sequence in a tile of features; or v and u, and far [M, tiles] is 1."""
    part = tl.program_id(0)
    tiles = tl.cdiv(features, FEATURES)
    columns = part % tiles * FEATURES + tl.arange(0, FEATURES)[None, :]
    m = (part // tiles).to(tl.int64)
    heads, dependents = heads + m * count_j, dependents + m * count_i
    skipped_j, skipped_i = m * count_j * features, m * count_i * features
    v, f, u, e = v + skipped_j, f + skipped_j, u + skipped_i, e + skipped_i
    largest = tl.maximum(
        largest_score(v, heads, count_j, features, columns),
        largest_score(u, dependents, count_i, features, columns),
    )
    outside = largest > bound
    tl.store(far + part, outside.to(tl.int32))
    rewrite(v, f, heads, count_j, features, columns, SCALE, outside)
    rewrite(u, e, dependents, count_i, features, columns, SCALE, outside)


@triton.jit(do_not_specialize=_SIZES)
def forward_kernel(
    f,
    e,
    h,
    heads,
    dependents,
    far,
    context,
    inverse,
    by_head,
    count_j,
    count_i,
    features,
    SCALE: tl.constexpr,
    ORDER: tl.constexpr,
    TRAIN: tl.constexpr,
):
    """s of a tile of heads, [M, J, D]; with TRAIN also 1 / sum of weights and ds_j / dv_j."""
    m, part, rows, columns = own_tile(count_j, features, ORDER)
    at_own = own_positions(heads + m * count_j, rows, count_j, ORDER)
    mine = m * count_j * features + rows[:, None] * features + columns
    inside = (rows < count_j)[:, None] & (columns < features)
    f_own = tl.load(f + mine, mask=inside, other=0.0)
    e, h = e + m * count_i * features, h + m * count_i * features
    dependents += m * count_i
    far = tl.load(far + part) != 0
    # Sums over dependents of w, w h and, with TRAIN, x = w q (1 - q) and x h.
    total = tl.zeros([ROWS, FEATURES], tl.float32)
    weighted, slopes, sloped = total, total, total
    first, last = reach(at_own, dependents, count_i, ORDER)
    for i in range(first, last):
        e_i = tl.load(e + i * features + columns, mask=columns < features, other=0.0)
        h_i = tl.load(h + i * features + columns, mask=columns < features, other=0.0)
        paired = paired_with(tl.load(dependents + i), at_own, ORDER)[:, None]
        q, weight = weigh(e_i, f_own, paired, far, SCALE)
        total += weight
        weighted += weight * h_i
        if TRAIN:
            slope = weight * (q - q * q)
            slopes += slope
            sloped += slope * h_i
    some = (total > 0.0) & (at_own >= 0)[:, None]
    over = tl.where(some, 1.0 / tl.where(some, total, 1.0), 0.0)
    result = weighted * over
    tl.store(context + mine, result, mask=inside)
    if TRAIN:
        tl.store(inverse + mine, over, mask=inside)
        tl.store(by_head + mine, (sloped - result * slopes) * over * 4.0, mask=inside)


@triton.jit(do_not_specialize=_SIZES)
def backward_kernel(
    f,
    e,
    h,
    heads,
    dependents,
    far,
    context,
    scaled,
    by_value,
    by_score,
    count_j,
    count_i,
    features,
    SCALE: tl.constexpr,
    ORDER: tl.constexpr,
):
    """dh and du of a tile of dependents, [M, I, D], from s and g / sum of weights, [M, J, D]."""
    m, part, rows, columns = own_tile(count_i, features, ORDER)
    at_own = own_positions(dependents + m * count_i, rows, count_i, ORDER)
    mine = m * count_i * features + rows[:, None] * features + columns
    inside = (rows < count_i)[:, None] & (columns < features)
    e_own = tl.load(e + mine, mask=inside, other=0.0)
    h_own = tl.load(h + mine, mask=inside, other=0.0)
    skipped = m * count_j * features
    f, context, scaled = f + skipped, context + skipped, scaled + skipped
    heads += m * count_j
    far = tl.load(far + part) != 0
    values = tl.zeros([ROWS, FEATURES], tl.float32)
    scores = values  # du / 4
    first, last = reach(at_own, heads, count_j, ORDER)
    for j in range(first, last):
        at = j * features + columns
        f_j = tl.load(f + at, mask=columns < features, other=0.0)
        context_j = tl.load(context + at, mask=columns < features, other=0.0)
        scaled_j = tl.load(scaled + at, mask=columns < features, other=0.0)
        paired = paired_with(tl.load(heads + j), at_own, ORDER)[:, None]
        q, weight = weigh(e_own, f_j, paired, far, SCALE)
        flow = weight * scaled_j
        values += flow
        scores += flow * (q - q * q) * (h_own - context_j)
    kept = (at_own >= 0)[:, None]
    tl.store(by_value + mine, tl.where(kept, values, 0.0), mask=inside)
    tl.store(by_score + mine, tl.where(kept, scores * 4.0, 0.0), mask=inside)
