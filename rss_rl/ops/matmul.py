"""Products of matrices in the types that training in lower precision asks for.

Legend: R rows, O outputs, I inputs.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

_TILE = 32
"""Columns that are multiplied at once."""


def empty_rows(rows: int, features: int, dtype: torch.dtype) -> Tensor:
    """An empty matrix [R, features] on the CPU, a first factor of `matmul`.

    Some more rows stand behind it, of zeros.
    """
    room = torch.empty(_whole(rows, dtype), features, dtype=dtype)
    room[rows:].zero_()
    return room[:rows]


def pad_rows(values: Tensor) -> Tensor:
    """[R, I] and zeros behind it: under autocast torch's own products, too, are of few numbers."""
    more = _whole(len(values), torch.get_autocast_dtype("cpu")) - len(values)
    return F.pad(values, (0, 0, 0, more)) if more else values


def matmul(left: Tensor, right: Tensor) -> Tensor:
    """In the type of its factors, whatever autocast would make of them.

    torch builds a program for each number of rows that a product in bfloat16 has, in 5 to 15 ms. Of
    a first factor by `empty_rows` it takes the rows behind it, too, so that there are few numbers.

    Such a program may multiply what stands behind a row, up to 32 columns, with 0: it has to be a
    number. Where it is in a longer row, which may be half written, the factor is copied.
    """
    rows, (stride, step) = len(left), left.stride()
    given = left
    if left.dtype == torch.bfloat16 and step == 1:
        if stride != left.shape[1] and left.shape[1] % _TILE:
            given = empty_rows(rows, left.shape[1], left.dtype).copy_(left)
        given = _with_padding(given)
    with torch.autocast("cpu", enabled=False):
        return (given @ right)[:rows]


def _with_padding(left: Tensor) -> Tensor:
    """With the rows behind it, where `empty_rows` made it or the rows that it is a part of."""
    whole, (stride, step) = _whole(len(left), left.dtype), left.stride()
    if whole * stride * left.element_size() != left.untyped_storage().nbytes():
        return left
    return left.as_strided((whole, left.shape[1]), (stride, step))


def _whole(rows: int, dtype: torch.dtype) -> int:
    """At least `rows`, one of 16 numbers between powers of two."""
    if dtype != torch.bfloat16:
        return rows
    step = max(8, 1 << max(0, rows.bit_length() - 5))
    return -(-rows // step) * step


def weight_gradient(flow: Tensor, rows: Tensor, dtype: torch.dtype) -> Tensor:
    """sum_r flow_r rows_r^T, [R, O] and [R, I] of one type to [O, I] of type `dtype`.

    The zeros behind both are multiplied, too, where there are as many: few numbers of rows.
    """
    if flow.dtype == torch.bfloat16:
        longer = _with_padding(flow), _with_padding(rows)
        if len(longer[0]) == len(longer[1]):
            flow, rows = longer
    return matmul(flow.T, rows).to(dtype)
