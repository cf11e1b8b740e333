"""Building blocks of `attention_triton_kernels`; the legend is there.

A tile has R rows and C features.
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
    own = tl.load(positions + rows, mask=rows < count, other=-1)
    if ORDER == "after":
        own = tl.where(own >= 0, own, _BEYOND)
    return own


@triton.jit
def paired_with(other, own, ORDER: tl.constexpr):
    """Whether they pair. With "others" the caller must exclude own rows that are not kept."""
    if ORDER == "before":
        ordered = other < own
    elif ORDER == "after":
        ordered = other > own
    else:
        ordered = other != own
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
def reach(own, others, count, ORDER: tl.constexpr):
    """First, and last + 1, of the others that pair with any of the rows `own` [R]."""
    limit = tl.max(own, 0)
    if ORDER == "after":
        limit = tl.min(own, 0)
    first = tl.full([_SCAN], _BEYOND, tl.int32)
    last = tl.zeros([_SCAN], tl.int32)
    for start in range(0, count, _SCAN):
        number = start + tl.arange(0, _SCAN)
        other = tl.load(others + number, mask=number < count, other=-1)
        needed = (other >= 0) & (limit >= 0)
        if ORDER != "others":
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
