"""Bit estimators composed of functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from torch import Tensor

from rss_rl.ops.estimators import BitRewards


class ComposedBitEstimator(NamedTuple):
    """See `BitEstimator`."""

    gradient: Callable[[BitRewards], Tensor]
    spread: Callable[[Tensor], Tensor]
    needs_flips: bool


def unchanged(uniforms: Tensor) -> Tensor:
    """Independent draws."""
    return uniforms
