"""How large the temporaries are of operations that work block by block."""

from __future__ import annotations

import torch

_ELEMENTS = 1 << 19
"""2 MB in float32, so that repeated passes over a block stay in the cache."""
_ELEMENTS_ON_DEVICE = 1 << 24
"""64 MB on an accelerator, where kernel launches for small blocks would dominate."""


def block_elements(device: torch.device) -> int:
    """Most elements of a temporary on this device."""
    return _ELEMENTS if device.type == "cpu" else _ELEMENTS_ON_DEVICE
