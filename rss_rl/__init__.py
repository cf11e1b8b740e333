"""Learning which words matter: distributed training of hard attention over text.

A trained model in three lines, without Ray:

    import rss_rl
    model = rss_rl.load("runs/demo")  # a run, or what `rss-rl export` wrote
    print(model.select(["the fox did never chase the owl ."])[0])
"""

from __future__ import annotations

__all__ = ["__version__", "load"]

from pathlib import Path
from typing import TYPE_CHECKING

from rss_rl.version import VERSION

if TYPE_CHECKING:
    from rss_rl.export.model import Model

__version__ = VERSION


def load(path: Path | str, which: str | int = "best", *, trust_plugins: bool = False) -> Model:
    """A trained model, ready to select words and predict; imports torch, never Ray.

    Args:
        path: the directory of a run, or one that `rss-rl export` wrote.
        which: checkpoint of a run: `best`, `latest` or a step; of no meaning for an export.
        trust_plugins: import components that its files name as package.module:OBJECT, which can
            then run any code.

    Raises:
        RssError: neither is there, or its files are damaged.
    """
    from rss_rl.components import EVERYTHING, NOTHING
    from rss_rl.export.model import load_model  # importing the library alone costs no torch

    return load_model(path, which, EVERYTHING if trust_plugins else NOTHING)
