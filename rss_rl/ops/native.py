"""The package's C++ kernels, compiled for this processor and cached for later processes.

A cached file is named by a hash of all that it depends on: the source, the compiler and its
options, the processor. It is moved into place atomically, so processes may compile concurrently.
`missing_compiler` and `missing_triton` say what a machine lacks to compile kernels.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import importlib.util
import os
import platform
import shutil
import subprocess
import sysconfig
import tempfile
import threading
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rss_rl.cache import cache_root

_SOURCES = Path(__file__).with_name("kernels")
_OPTIONS = ("-std=gnu++17", "-O2", "-fno-math-errno", "-fPIC", "-pthread", "-w")
_TUNED = ("-march=native",)
_FLAGS_VARIABLE = "RSS_RL_KERNEL_FLAGS"
"""Environment variable: options in place of `_TUNED`, such as those of a sanitizer."""
_LINKED = ("-shared",)
_LIBRARIES = ("-ldl",)
_LONGEST_S = 300.0
"""Timeout of a compiler; the longest file takes about four seconds on one core."""


_SUFFIXES = {torch.float32: "float", torch.float64: "double"}
_WORTH_THREADS, _WORTH_NEW_THREADS = 1 << 16, 1 << 20
"""Innermost-loop steps, of a third of a nanosecond, from which threads pay: those of torch's pool,
which cost some microseconds, and new ones, which cost 0.1 ms."""


_OLDEST = (7, 0)
"""Lowest compute capability for which torch itself uses Triton."""
_once = threading.Lock()


class KernelsError(Exception):
    """This machine cannot compile or load the kernels."""


class OutOfRange(Exception):
    """Input for which a kernel is not exact, NaN included."""


def load_kernels() -> ctypes.CDLL:
    """The kernels of the folder `kernels`, compiled unless they are cached.

    Raises:
        KernelsError: there is no C++ compiler (`CXX`, or g++), or it fails.
    """
    flags = os.environ.get(_FLAGS_VARIABLE)
    with _once:
        library = _tried(os.environ.get("CXX") or "g++", flags, cache_root() / "kernels")
    if isinstance(library, KernelsError):
        raise library
    return library


def one_kind(tensors: Iterable[Tensor]) -> bool:
    """Whether all are on the CPU and of one type, float32 or float64, as kernels require."""
    kinds = {(tensor.dtype, tensor.device.type) for tensor in tensors}
    return len(kinds) == 1 and kinds <= {(dtype, "cpu") for dtype in _SUFFIXES}


def has_kernels_for(dtype: torch.dtype) -> bool:
    """Whether it is float32 or float64."""
    return dtype in _SUFFIXES


def address(
    tensor: Tensor | None, dtype: torch.dtype, shape: Sequence[int], stride: int | None = None
) -> ctypes.c_void_p:
    """Pointer to a tensor that has been checked for all that a kernel assumes; null for None.

    Args:
        shape: of the tensor, [R, D] if there is a stride.
        stride: elements from one row to the next; None: the tensor is contiguous.

    Raises:
        ValueError: another type, device, shape or stride, overlapping rows, or a lazy negation.
        RuntimeError: its gradient would be lost.
    """
    if tensor is None:
        return ctypes.c_void_p()
    if tensor.requires_grad and torch.is_grad_enabled():
        raise RuntimeError("a kernel has no gradient; its callers define it")
    fits = tensor.dtype == dtype and tensor.shape == tuple(shape) and tensor.is_cpu
    fits = fits and tensor.layout == torch.strided and not tensor.is_neg()
    if stride is None:
        fits = fits and tensor.is_contiguous()
    elif fits:
        rows, features = shape
        fits = stride >= features and (rows < 2 or tensor.stride(0) == stride)
        fits = fits and (features < 2 or tensor.stride(1) == 1)
    if not fits:
        raise ValueError(
            f"a kernel takes {dtype} {tuple(shape)} in memory"
            f" {'without gaps' if stride is None else f'in rows of {stride}'}, not {tensor.dtype}"
            f" {tuple(tensor.shape)} on {tensor.device}"
        )
    return ctypes.c_void_p(tensor.data_ptr())


def row_stride(*tensors: Tensor) -> int:
    """Row stride, in elements, that tensors [R, D] share.

    A dimension of size 1 may have any stride, so a tensor of one row is ignored.

    Raises:
        ValueError: they do not agree.
    """
    strides = {tensor.stride(0) for tensor in tensors if len(tensor) > 1}
    if len(strides) > 1:
        raise ValueError(f"rows of one length, got {sorted(strides)}")
    return strides.pop() if strides else tensors[0].shape[1]


def run_kernel(name: str, dtype: torch.dtype, *arguments: Any) -> None:
    """Run `rss_<name>_<type>`.

    Args:
        dtype: float32 or float64, of all tensors that are not integers.
        arguments: structures, addresses, integers and floats.

    Raises:
        OutOfRange: the kernel reports it.
        MemoryError: the kernel cannot allocate memory.
        KernelsError: see `load_kernels`.
    """
    converted = map(_argument, arguments)
    outcome = _function(f"rss_{name}_{_SUFFIXES[dtype]}")(*converted)
    if outcome == 1:
        raise OutOfRange
    if outcome:
        raise MemoryError(f"{name.replace('_', ' ')} ran out of memory")


@functools.cache
def _function(name: str) -> Any:
    """Cached, as the lookup takes as long as a small kernel."""
    return getattr(load_kernels(), name)


def threads_for(steps: int) -> int:
    """Threads for a kernel whose innermost loop runs `steps` times."""
    worth = _WORTH_THREADS if _has_team() else _WORTH_NEW_THREADS
    return torch.get_num_threads() if steps >= worth else 1


@functools.cache
def _has_team() -> bool:
    return bool(load_kernels().rss_has_team())


def _argument(value: Any) -> Any:
    if isinstance(value, ctypes.c_void_p):
        return value
    if isinstance(value, ctypes.Structure | ctypes.Array):
        return ctypes.byref(value)
    return ctypes.c_int64(value) if isinstance(value, int) else ctypes.c_double(value)


@functools.cache
def _tried(compiler: str, flags: str | None, cache: Path) -> ctypes.CDLL | KernelsError:
    """Cached, failures too: a failing compiler also takes its time."""
    # By default a compiler need not support `_TUNED`.
    choices = [_TUNED, ()] if flags is None else [tuple(flags.split())]
    try:
        return _loaded(compiler, choices, cache)
    except KernelsError as error:
        return error


def _loaded(compiler: str, choices: Sequence[tuple[str, ...]], cache: Path) -> ctypes.CDLL:
    """Compiled with the first of these options that the compiler accepts."""
    path = shutil.which(compiler)
    if path is None:
        raise KernelsError(f"there is no C++ compiler '{compiler}'")
    library = cache / f"{_identity(path, choices[0])}.so"
    with suppress(OSError):  # missing or incomplete
        return ctypes.CDLL(str(library))
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache) as folder:
            os.replace(_compiled(path, choices, Path(folder)), library)
        return ctypes.CDLL(str(library))
    except OSError:  # the cache is not writable, or its file system is mounted noexec
        with tempfile.TemporaryDirectory() as folder:
            return _opened(_compiled(path, choices, Path(folder)))


def _opened(library: Path) -> ctypes.CDLL:
    try:
        return ctypes.CDLL(str(library))
    except OSError as error:
        raise KernelsError(f"the compiled kernels cannot be loaded: {error}") from None


def _identity(compiler: str, tuned: tuple[str, ...]) -> str:
    """Hash of all that the compiled code depends on."""
    parts = [path.read_bytes() for path in sorted(_SOURCES.glob("*.[ch]*"))]
    parts.extend((_output([compiler, "--version"]).encode(), _processor().encode()))
    parts.extend(option.encode() for option in (compiler, *_OPTIONS, *tuned, *_LINKED, *_LIBRARIES))
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:24]


def _processor() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return f"{platform.machine()} {platform.processor()}"
    fields = ("model name", "flags", "Features", "CPU part")
    return "\n".join(sorted({line for line in text.splitlines() if line.startswith(fields)}))


def _compiled(compiler: str, choices: Sequence[tuple[str, ...]], folder: Path) -> Path:
    """The library, in `folder`."""
    *others, last = choices
    for tuned in others:
        with suppress(KernelsError):
            return _built([compiler, *_OPTIONS, *tuned], folder)
    return _built([compiler, *_OPTIONS, *last], folder)


def _built(command: list[str], folder: Path) -> Path:
    """Compiles all files with the same options, on which their vectors depend."""
    units = _units(folder)
    objects = [str(unit.with_suffix(".o")) for unit in units]
    with ThreadPoolExecutor(len(units)) as pool:
        for _ in pool.map(
            lambda unit, target: _output([*command, "-c", str(unit), "-o", target]), units, objects
        ):
            pass
    out = folder / "kernels.so"
    _output([*command, *_LINKED, *objects, *_LIBRARIES, "-o", str(out)])
    return out


def _units(folder: Path) -> list[Path]:
    """Two files that include all sources, split by whether these ask for more optimisation.

    The headers take the compiler as long as most kernels; so it reads them only twice.
    """
    groups: dict[bool, list[str]] = {}
    for source in sorted(_SOURCES.glob("*.cpp")):
        asks = "#pragma GCC optimize" in source.read_text()
        groups.setdefault(asks, []).append(f'#include "{source}"\n')
    units = []
    for asks, includes in groups.items():
        units.append(folder / f"{'more' if asks else 'less'}.cpp")
        units[-1].write_text("".join(includes))
    return units


def _output(command: list[str]) -> str:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=_LONGEST_S
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise KernelsError(f"'{command[0]}' cannot be run: {error}") from None
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if "error" in line] or ["no message"]
        raise KernelsError(f"'{command[0]}' cannot compile the kernels: {lines[0].strip()}")
    return done.stdout


def missing_compiler() -> str | None:
    """What this machine lacks to compile kernels for its CPU; None if nothing.

    Compiles the kernels to find out, unless they are cached.
    """
    try:
        load_kernels()
    except KernelsError as error:
        return str(error)
    return None


def missing_triton() -> str | None:
    """What this machine lacks to compile kernels for its CUDA devices; None if nothing."""
    if importlib.util.find_spec("triton") is None:
        return "there is no package 'triton'"
    compilers = [os.environ["CC"]] if "CC" in os.environ else ["gcc", "clang"]
    if not any(map(shutil.which, compilers)):
        return f"there is no C compiler {' or '.join(map(repr, compilers))}"
    headers = Path(sysconfig.get_path("include"))
    complete = (headers / "Python.h").is_file()
    return None if complete else f"Python's C headers are not in {headers}"


@functools.cache
def runs_triton(device: torch.device) -> bool:
    """Whether Triton kernels can be compiled here and run on this CUDA device."""
    return missing_triton() is None and torch.cuda.get_device_capability(device) >= _OLDEST
