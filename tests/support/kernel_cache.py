"""Kernels that this machine has compiled, for tests with a home or cache of their own."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from rss_rl.cache import cache_root

_KERNELS = cache_root() / "kernels"


def share_kernels(cache: Path) -> Path:
    """Let `cache`, as `RSS_RL_CACHE` names it, hold the kernels of this machine too."""
    with suppress(OSError):  # a home that cannot be written: they are compiled anew
        _KERNELS.mkdir(parents=True, exist_ok=True)
    cache.mkdir(parents=True, exist_ok=True)
    if _KERNELS.is_dir():
        (cache / "kernels").symlink_to(_KERNELS)
    return cache
