"""Settings of the C allocator for a process that makes the same large tensors repeatedly."""

from __future__ import annotations

import ctypes

_OPTIONS = {
    -3: 32 << 20,  # M_MMAP_THRESHOLD: from here on a piece is given back when it is freed
    -1: 256 << 20,  # M_TRIM_THRESHOLD: of free memory at the end, more of which is given back
    -2: 16 << 20,  # M_TOP_PAD: taken at once when there is not enough
}


def keep_freed_memory() -> bool:
    """Have the C library keep some of what is freed; False where it has no such setting.

    By default an update's tensors are given back to the system and taken from it again, which then
    fills each page with zeros first: 2,000 page faults an update of SICK's size, a twentieth of
    its time and more where other work is done beside it.
    """
    try:
        option = ctypes.CDLL(None).mallopt
        ctypes.CDLL(None).gnu_get_libc_version  # noqa: B018, others have a `mallopt`, too
    except (AttributeError, OSError, TypeError):
        return False
    taken = [option(name, value) for name, value in _OPTIONS.items()]
    return all(taken)
