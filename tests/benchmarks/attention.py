"""Feature-wise attention by each backend, as `device.sh` measures it.

The rival `materialised` is what the papers' program does: every pair's logit is in memory, softmax
over the dependents, torch's own gradients.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from rss_rl.ops.attention import KernelBackend, feature_wise_attention
from rss_rl.ops.masking import kept_indices
from rss_rl.ops.packing import Pairs

SCALE = 5.0
Work = Callable[[], Any]
Backend = KernelBackend | Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
"""Ours by name, or a function such as `materialised`."""


def materialised(v: Tensor, u: Tensor, h: Tensor, allowed: Tensor) -> Tensor:
    """The attention with a tensor of all pairs, [M, J, I, D]."""
    logits = SCALE * torch.tanh((v[:, :, None] + u[:, None]) / SCALE)
    shown = torch.softmax(logits.masked_fill(~allowed[..., None], -1e30), 2)
    return (shown * h[:, None]).sum(2) * allowed.any(2)[..., None]


class Case:
    """Attention of B sentences of n tokens as a layer: the two dense maps are part of it."""

    def __init__(
        self, batch: int, tokens: int, features: int, device: torch.device | None = None
    ) -> None:
        self.h = torch.randn(batch, tokens, features, requires_grad=True, device=device)
        self.maps = [torch.nn.Linear(features, features, device=device) for _ in range(2)]
        everything = kept_indices(torch.ones(batch, tokens, dtype=torch.bool, device=device))
        self.pairs = Pairs(everything, everything, "before")
        self.allowed = self.pairs.mask(slice(None), slice(None))
        self.sought = [self.h, *(p for m in self.maps for p in m.parameters())]

    def forward(self, backend: Backend) -> Tensor:
        v, u = (dense(self.h) for dense in self.maps)
        if callable(backend):
            return backend(v, u, self.h, self.allowed)
        return feature_wise_attention(v, u, self.h, self.pairs, SCALE, backend)

    def train(self, backend: Backend) -> Work:
        """Forward and backward."""
        return lambda: torch.autograd.grad(self.forward(backend).sum(), self.sought)
