"""The cache directory of this machine: fetched data, compiled kernels."""

from __future__ import annotations

import os
from pathlib import Path


def cache_root() -> Path:
    """`RSS_RL_CACHE`, or `~/.cache/rss-rl`."""
    named = os.environ.get("RSS_RL_CACHE")
    return Path(named).absolute() if named else Path.home() / ".cache" / "rss-rl"
