"""Matrix products for mixed-precision training, most of it on the CPU.

Legend: R rows, O outputs, I inputs.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

_TILE = 32
"""Columns that a kernel multiplies at once."""


def products_in(dtype: torch.dtype | None, device: torch.device) -> torch.autocast:
    """Autocast of matrix products to a dtype; None: without autocast."""
    return torch.autocast(device.type, dtype=dtype, enabled=dtype is not None)


def empty_rows(rows: int, features: int, dtype: torch.dtype) -> Tensor:
    """An uninitialised matrix [R, features] on the CPU, a first factor of `matmul`.

    Its storage continues with some padding rows of zeros.
    """
    room = torch.empty(_whole(rows, dtype), features, dtype=dtype)
    if len(room) > rows:
        room[rows:].zero_()
    return room[:rows]


def pad_rows(values: Tensor) -> Tensor:
    """[R, I] and padding rows of zeros: torch's own products under autocast see few row counts."""
    more = _whole(len(values), torch.get_autocast_dtype("cpu")) - len(values)
    return F.pad(values, (0, 0, 0, more)) if more else values


def matmul(left: Tensor, right: Tensor) -> Tensor:
    """left @ right in the type of the factors, regardless of autocast.

    torch builds a kernel for each number of rows of a bfloat16 product, in 5 to 15 ms. A first
    factor from `empty_rows` is multiplied with its padding rows, so that there are few row counts.

    Such a kernel may read up to 32 columns past a row and multiply them by 0: they must be finite.
    A factor that is part of longer rows, which may be only partly written, is copied.
    """
    rows, (stride, step) = len(left), left.stride()
    factor = left
    if left.dtype == torch.bfloat16 and step == 1:
        if stride != left.shape[1] and left.shape[1] % _TILE:
            factor = empty_rows(rows, left.shape[1], left.dtype).copy_(left)
        factor = _with_padding(factor)
    with torch.autocast("cpu", enabled=False):
        return (factor @ right)[:rows]


def _with_padding(left: Tensor) -> Tensor:
    """`left` with its padding rows, if it is, or is a slice of, a matrix from `empty_rows`."""
    padded, (stride, step) = _whole(len(left), left.dtype), left.stride()
    if padded * stride * left.element_size() != left.untyped_storage().nbytes():
        return left
    return left.as_strided((padded, left.shape[1]), (stride, step))


def _whole(rows: int, dtype: torch.dtype) -> int:
    """`rows` rounded up to one of 16 numbers between powers of two."""
    if dtype != torch.bfloat16:
        return rows
    step = max(8, 1 << max(0, rows.bit_length() - 5))
    return -(-rows // step) * step


def weight_gradient(flow: Tensor, rows: Tensor, dtype: torch.dtype) -> Tensor:
    """sum_r flow_r rows_r^T, [R, O] and [R, I] of one type to [O, I] of type `dtype`.

    Padding rows are included if both factors have as many, so that there are few row counts.
    """
    if flow.dtype == torch.bfloat16:
        longer = _with_padding(flow), _with_padding(rows)
        if len(longer[0]) == len(longer[1]):
            flow, rows = longer
    return matmul(flow.T, rows).to(dtype)
