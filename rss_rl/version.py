"""The version of the installed library."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version


def _installed() -> str:
    try:
        return version("rss-rl")
    except PackageNotFoundError:  # a source tree that was never installed
        return "0+unknown"


VERSION = _installed()
