"""Named tensors in a safetensors file, with bytes, shapes and dtypes preserved exactly."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from rss_rl.durable import file_sha256, sync_file
from rss_rl.errors import CheckpointError
from rss_rl.types import Array

if TYPE_CHECKING:
    import torch

    TensorLike: TypeAlias = Array | torch.Tensor
else:
    TensorLike: TypeAlias = object

_DTYPES = {
    "BOOL": np.bool_,
    "U8": np.uint8,
    "I8": np.int8,
    "U16": np.uint16,
    "I16": np.int16,
    "U32": np.uint32,
    "I32": np.int32,
    "U64": np.uint64,
    "I64": np.int64,
    "F16": np.float16,
    "F32": np.float32,
    "F64": np.float64,
}
_SAVED = frozenset(np.dtype(kind) for kind in _DTYPES.values())


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
    if tensor.dtype.newbyteorder("=") not in _SAVED:
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
    tensors: dict[str, Array] = {}
    try:
        with safe_open(path, framework="np") as handle:
            for name in handle.keys():  # noqa: SIM118 - the handle is no mapping
                dtype = handle.get_slice(name).get_dtype()
                if dtype not in _DTYPES:
                    raise CheckpointError(
                        f"tensor '{name}' has the dtype {dtype}", where=str(path), remedy=remedy
                    )
                tensors[name] = handle.get_tensor(name)
    except (SafetensorError, OSError, ValueError, MemoryError) as error:
        raise CheckpointError(f"unreadable: {error}", where=str(path), remedy=remedy) from error
    return tensors
