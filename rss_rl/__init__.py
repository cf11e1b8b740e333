"""Learning which words matter: distributed training of hard attention over text."""

from importlib.metadata import PackageNotFoundError, version

__all__ = ["__version__"]

try:
    __version__ = version("rss-rl")
except PackageNotFoundError:  # a source tree that was never installed
    __version__ = "0+unknown"
