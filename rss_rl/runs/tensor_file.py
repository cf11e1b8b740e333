"""Named tensors in a safetensors file, with bytes, shapes and dtypes preserved exactly."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from rss_rl.durable import file_sha256, sync_file
from rss_rl.errors import CheckpointError
from rss_rl.types import Array

if TYPE_CHECKING:
    import torch

    TensorLike: TypeAlias = Array | torch.Tensor
else:
    TensorLike: TypeAlias = object


_UNREADABLE = SafetensorError, OSError, ValueError, TypeError, AttributeError, MemoryError
"""What the library raises for damaged files, and for types that NumPy lacks."""


def _is_exact(dtype: np.dtype[Any]) -> bool:
    """Whether numbers of this type are saved and read without loss."""
    return dtype.kind in "biuf" and dtype.itemsize <= 8


def _as_array(name: str, tensor: TensorLike, path: Path) -> Array:
    """`tensor` as a C-contiguous array in native byte order."""
    remedy = "Convert it to bool, integer, float16, float32 or float64 before it is saved"
    if not isinstance(tensor, np.ndarray):
        try:
            tensor = tensor.detach().cpu().numpy()
        except TypeError as error:  # bfloat16, say
            raise CheckpointError(
                f"tensor '{name}': {error}", where=str(path), remedy=remedy
            ) from error
    if not _is_exact(tensor.dtype):
        raise CheckpointError(f"tensor '{name}' is {tensor.dtype}", where=str(path), remedy=remedy)
    # Not ascontiguousarray, which turns a scalar into an array of one. C order is needed: the
    # safetensors writer ignores strides, and would permute a transposed tensor.
    return np.array(tensor, dtype=tensor.dtype.newbyteorder("="), order="C", copy=None)


def write_tensors(path: Path, tensors: Mapping[str, TensorLike]) -> str:
    """Write `tensors` to `path`, wait until they are on the disk, and return the file's SHA-256.

    Raises:
        CheckpointError: a dtype that cannot be saved exactly.
        OSError, SafetensorError: writing fails.
    """
    save_file({name: _as_array(name, tensor, path) for name, tensor in tensors.items()}, path)
    sync_file(path)
    return file_sha256(path)


def read_tensors(path: Path, remedy: str) -> dict[str, Array]:
    """The tensors in `path` as writable arrays.

    Raises:
        CheckpointError: not an intact safetensors file of supported dtypes; ends with `remedy`.
    """
    try:
        tensors: dict[str, Array] = load_file(path)
    except _UNREADABLE as error:
        raise CheckpointError(f"unreadable: {error}", where=str(path), remedy=remedy) from error
    for name, tensor in tensors.items():
        if not _is_exact(tensor.dtype):
            what = f"tensor '{name}' has the dtype {tensor.dtype}"
            raise CheckpointError(what, where=str(path), remedy=remedy)
    return tensors
