"""Products of matrices in the types that training in lower precision asks for.

Legend: R rows, O outputs, I inputs.
"""

from __future__ import annotations

__all__ = ["product", "room_for", "weight_gradient"]

import ctypes
import functools
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

_TILE = 32
"""Columns that are multiplied at once."""
_ROW_MAJOR, _AS_IS, _TRANSPOSED = 101, 111, 112
"""Of the CBLAS interface."""


def room_for(rows: int, features: int, dtype: torch.dtype) -> Tensor:
    """An empty matrix [R, features] on the CPU, a first factor of `product`.

    Some more rows stand behind it, of zeros.
    """
    room = torch.empty(_whole(rows, dtype), features, dtype=dtype)
    room[rows:].zero_()
    return room[:rows]


def product(left: Tensor, right: Tensor) -> Tensor:
    """In the type of its factors, whatever autocast would make of them.

    torch builds a program for each number of rows that a product in bfloat16 has, in 5 to 15 ms. Of
    a first factor by `room_for` it takes the rows behind it, too, so that there are few numbers.

    Such a program may multiply what stands behind a row, up to 32 columns, with 0: it has to be a
    number. Where it is in a longer row, which may be half written, the factor is copied.
    """
    rows, (stride, step) = len(left), left.stride()
    given = left
    if left.dtype == torch.bfloat16 and step == 1:
        if stride != left.shape[1] and left.shape[1] % _TILE:
            given = room_for(rows, left.shape[1], left.dtype).copy_(left)
        given = _with_room(given)
    with torch.autocast("cpu", enabled=False):
        return (given @ right)[:rows]


def _with_room(left: Tensor) -> Tensor:
    """With the rows behind it, where `room_for` made it or the rows that it is a part of."""
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

    Of bfloat16 on a CPU with AMX, where torch is built with MKL, sums are rounded to float32 alone,
    not to bfloat16 first, in half the time: torch's own product transposes the first factor for
    itself. Without AMX it is MKL's that takes longer.
    """
    brief = flow.dtype == torch.bfloat16 and flow.device.type == "cpu"
    by_rows = flow.stride(1) == rows.stride(1) == 1
    multiply = _quick_product() if brief and by_rows and dtype == torch.float32 else None
    if multiply is None or not len(rows):
        return _transposed_product(flow, rows).to(dtype)
    count, outputs, inputs = len(rows), flow.shape[1], rows.shape[1]
    result = rows.new_empty(outputs, inputs, dtype=dtype)
    multiply(
        *(_ROW_MAJOR, _TRANSPOSED, _AS_IS, outputs, inputs, count),
        *(1.0, flow.data_ptr(), flow.stride(0), rows.data_ptr(), rows.stride(0)),
        *(0.0, result.data_ptr(), inputs),
    )
    return result


def _transposed_product(flow: Tensor, rows: Tensor) -> Tensor:
    """flow^T rows, and the zeros behind both, where there are as many: few numbers of rows."""
    if flow.dtype == torch.bfloat16:
        longer = _with_room(flow), _with_room(rows)
        if len(longer[0]) == len(longer[1]):
            flow, rows = longer
    return product(flow.T, rows)


def _quick_product() -> Any | None:
    """`_bfloat16_product` where it is the quicker one."""
    return _bfloat16_product() if getattr(torch.cpu, "_is_amx_tile_supported", bool)() else None


@functools.cache
def _bfloat16_product() -> Any | None:
    """MKL's product of bfloat16 to float32, which torch has and does not offer."""
    try:
        library = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"))
        found = library.cblas_gemm_bf16bf16f32
    except (OSError, AttributeError):
        return None
    whole, pointer, real = ctypes.c_int, ctypes.c_void_p, ctypes.c_float
    found.argtypes = [*[whole] * 6, real, pointer, whole, pointer, whole, real, pointer, whole]
    found.restype = None
    return found
