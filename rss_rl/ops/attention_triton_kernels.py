"""Triton kernels of feature-wise attention: a program owns a tile of rows and features.

The formulas are those of `kernels/attention.cpp`: a weight is exp(-2 c q), q = 1 / (1 + E_i F_j).
Where E = e^(2u/c) and F = e^(2v/c) would not be exact enough, their tensors hold u and v instead,
and q is computed from the sum, at the cost of a third exponential.

A program's rows are heads in the forward pass and dependents in the backward pass. It accumulates
the other side's contributions sequentially, without atomics, and unpaired tokens add zeros: a row
has the same bits in each run and whatever else is in the batch.

`heads` and `dependents` are int32 positions, [M, J] and [M, I], -1 where none is kept. ORDER says
which others a row is paired with: those "before" it, those "after" it or all "others".

Legend: M sequences, J heads, I dependents, D features, SCALE c. Importing this module imports
Triton; if TRITON_INTERPRET=1 is set by then, NumPy runs the kernels, on any device.
"""

from __future__ import annotations

import triton
import triton.language as tl

from rss_rl.ops.attention_triton_tiles import (
    FEATURES,
    ROWS,
    largest_score,
    own_positions,
    own_tile,
    paired_with,
    reach,
    rewrite,
    weigh,
)

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


@triton.jit
def _sums(
    own,
    f,
    e,
    h,
    dependents,
    count_i,
    columns,
    features,
    far,
    SCALE: tl.constexpr,
    ORDER: tl.constexpr,
    TRAIN: tl.constexpr,
):
    """Sums over dependents of w, w h and, with TRAIN, x = w q (1 - q) and x h; each [R, C]."""
    total = tl.zeros([ROWS, FEATURES], tl.float32)
    weighted, slopes, sloped = total, total, total
    first, last = reach(own, dependents, count_i, ORDER)
    for i in range(first, last):
        e_i = tl.load(e + i * features + columns, mask=columns < features, other=0.0)
        h_i = tl.load(h + i * features + columns, mask=columns < features, other=0.0)
        paired = paired_with(tl.load(dependents + i), own, ORDER)[:, None]
        q, weight = weigh(e_i, f, paired, far, SCALE)
        total += weight
        weighted += weight * h_i
        if TRAIN:
            slope = weight * (q - q * q)
            slopes += slope
            sloped += slope * h_i
    return total, weighted, slopes, sloped


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
    own = own_positions(heads + m * count_j, rows, count_j, ORDER)
    mine = m * count_j * features + rows[:, None] * features + columns
    inside = (rows < count_j)[:, None] & (columns < features)
    f_own = tl.load(f + mine, mask=inside, other=0.0)
    e, h = e + m * count_i * features, h + m * count_i * features
    dependents += m * count_i
    far = tl.load(far + part) != 0
    total, weighted, slopes, sloped = _sums(
        own, f_own, e, h, dependents, count_i, columns, features, far, SCALE, ORDER, TRAIN
    )
    some = (total > 0.0) & (own >= 0)[:, None]
    over = tl.where(some, 1.0 / tl.where(some, total, 1.0), 0.0)
    result = weighted * over
    tl.store(context + mine, result, mask=inside)
    if TRAIN:
        tl.store(inverse + mine, over, mask=inside)
        tl.store(by_head + mine, (sloped - result * slopes) * over * 4.0, mask=inside)


@triton.jit
def _flows(
    own,
    e,
    h,
    f,
    context,
    scaled,
    heads,
    count_j,
    columns,
    features,
    far,
    SCALE: tl.constexpr,
    ORDER: tl.constexpr,
):
    """dh and du / 4 of a tile of dependents, [R, C]."""
    by_value = tl.zeros([ROWS, FEATURES], tl.float32)
    by_score = by_value
    first, last = reach(own, heads, count_j, ORDER)
    for j in range(first, last):
        at = j * features + columns
        f_j = tl.load(f + at, mask=columns < features, other=0.0)
        context_j = tl.load(context + at, mask=columns < features, other=0.0)
        scaled_j = tl.load(scaled + at, mask=columns < features, other=0.0)
        paired = paired_with(tl.load(heads + j), own, ORDER)[:, None]
        q, weight = weigh(e, f_j, paired, far, SCALE)
        flow = weight * scaled_j
        by_value += flow
        by_score += flow * (q - q * q) * (h - context_j)
    return by_value, by_score


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
    own = own_positions(dependents + m * count_i, rows, count_i, ORDER)
    mine = m * count_i * features + rows[:, None] * features + columns
    inside = (rows < count_i)[:, None] & (columns < features)
    e_own = tl.load(e + mine, mask=inside, other=0.0)
    h_own = tl.load(h + mine, mask=inside, other=0.0)
    skipped = m * count_j * features
    f, context, scaled = f + skipped, context + skipped, scaled + skipped
    heads += m * count_j
    far = tl.load(far + part) != 0
    values, scores = _flows(
        own, e_own, h_own, f, context, scaled, heads, count_j, columns, features, far, SCALE, ORDER
    )
    kept = (own >= 0)[:, None]
    tl.store(by_value + mine, tl.where(kept, values, 0.0), mask=inside)
    tl.store(by_score + mine, tl.where(kept, scores * 4.0, 0.0), mask=inside)
