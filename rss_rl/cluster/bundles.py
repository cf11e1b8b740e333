"""Bundles of deltas in Ray's object store, for those who load them; needs no torch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import ray

if TYPE_CHECKING:
    from rss_rl.rollouts.snapshot import Delta


def fetched(stored: list[tuple[Any, int]], timeout_s: float) -> tuple[Delta, ...]:
    """The deltas at these references to bundles and places in them; each bundle is fetched once."""
    references = list(dict.fromkeys(reference for reference, _ in stored))
    bundles = dict(zip(references, ray.get(references, timeout=timeout_s), strict=True))
    return tuple(bundles[reference][place] for reference, place in stored)
