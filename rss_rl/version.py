"""The version of the installed library."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version


def installed_version(package: str) -> str | None:
    """The version of an installed package; None if it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


VERSION = installed_version("rss-rl") or "0+unknown"  # a source tree that was never installed
