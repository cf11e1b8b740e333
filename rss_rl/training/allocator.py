"""Settings of the C allocator for a process that makes the same large tensors repeatedly."""

from __future__ import annotations

import ctypes

_OPTIONS = {
    -3: 32 << 20,  # M_MMAP_THRESHOLD: blocks from this size on are mapped, and unmapped when freed
    -1: 256 << 20,  # M_TRIM_THRESHOLD: free memory at the top of the heap beyond this is returned
    -2: 16 << 20,  # M_TOP_PAD: extra memory requested each time the heap grows
}


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
    taken = [option(name, value) for name, value in _OPTIONS.items()]
    return all(taken)
