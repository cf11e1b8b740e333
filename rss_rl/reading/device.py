"""How models are computed: device, precision of matrix products, threads, the C allocator."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from rss_rl import ops
from rss_rl.errors import ConfigError
from rss_rl.ops.matmul import products_in
from rss_rl.reading.models import Models

_THREADS_PER_CPU = 8
_ALLOCATOR = {
    -3: 32 << 20,  # M_MMAP_THRESHOLD: blocks from this size on are mapped, and unmapped when freed
    -1: 256 << 20,  # M_TRIM_THRESHOLD: free memory at the top of the heap beyond this is returned
    -2: 16 << 20,  # M_TOP_PAD: extra memory requested each time the heap grows
}


def find_device(name: str, where: str = "learner.device") -> torch.device:
    """The device called `name`, tested with a small tensor.

    Args:
        where: the key that names it, for errors.

    Raises:
        ConfigError: no such device, or this installation of torch cannot use it.
    """
    try:
        device = torch.device(name)
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise ConfigError(
            f"the device '{name}' cannot be used: {reason}",
            where=where,
            remedy="Use cpu, or cuda with a CUDA build of torch on a machine that has a GPU",
        ) from error
    return device


def multiplies_bfloat16(device: torch.device) -> bool:
    """Whether the device has native bfloat16 matrix products, rather than emulating them.

    On a CPU these are AVX512-BF16 and AMX; if this version of torch cannot tell, False.
    """
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    names = ("_is_avx512_bf16_supported", "_is_amx_tile_supported")
    return device.type == "cpu" and any(getattr(torch.cpu, name, bool)() for name in names)


def check_threads(count: int, where: str) -> None:
    """Refuse far more threads than this machine has CPUs.

    Args:
        where: the key that asks for them, for errors.

    Raises:
        ConfigError: there are more than eight a CPU.
    """
    most = _THREADS_PER_CPU * (os.cpu_count() or 1)
    if count > most:
        raise ConfigError(
            f"{count} threads on {os.cpu_count()} CPUs",
            where=where,
            remedy=f"Give {most} at most; more than one a CPU are slower",
        )


@contextmanager
def fixed_threads(count: int) -> Iterator[None]:
    """Run with `count` CPU threads, so that results do not depend on the process.

    A forked process has only one.
    """
    before, count = torch.get_num_threads(), 1 if ops.is_forked else count
    if before != count:
        torch.set_num_threads(count)
    try:
        yield
    finally:
        if before != count:
            torch.set_num_threads(before)


@contextmanager
def inference(models: Models, threads: int, device: torch.device, precision: str) -> Iterator[None]:
    """Within it, models are in evaluation mode, without gradients, with autocast as configured."""
    with (
        models.evaluating(),
        fixed_threads(threads),
        torch.inference_mode(),
        autocast(device, precision),
    ):
        yield


def autocast_dtype(device: torch.device, precision: str) -> torch.dtype | None:
    """The dtype of matrix products, None for float32; `auto`: bfloat16 if the device has it."""
    return torch.bfloat16 if precision == "auto" and multiplies_bfloat16(device) else None


def autocast(device: torch.device, precision: str) -> torch.autocast:
    """Autocast for the configured `precision`."""
    return products_in(autocast_dtype(device, precision), device)


def keep_freed_memory() -> bool:
    """Make the C library keep some freed memory; False if it has no such setting.

    By default an update's tensors are returned to the system and requested again, and the kernel
    zeroes each page anew: 2,000 page faults in an update on SICK, a twentieth of its time, and
    more on a busy machine.
    """
    try:
        option = ctypes.CDLL(None).mallopt
        ctypes.CDLL(None).gnu_get_libc_version  # noqa: B018, other C libraries have a `mallopt`
    except (AttributeError, OSError, TypeError):
        return False
    taken = [option(name, value) for name, value in _ALLOCATOR.items()]
    return all(taken)
