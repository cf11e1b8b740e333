"""Bell-shaped bumps along a sequence: each token has a height and a width, and they add up.

    smooth_i = sum_j height_j g((i - j) / width_j) / sqrt(width_j sqrt(pi)),  g(x) = exp(-x^2 / 2)

A bump's energy, the sum of its squares, depends on its height but not on its width, so independent
heights give sums of the same size. Bumps are cut off beyond three widths, and at the ends of parts.

Legend: B sentences, R roles, N tokens, W positions that a bump reaches.
Sources: Brinner and Zarriess, Model Interpretability and Rationale Extraction by Input Mask
Optimization (MaRC), Findings of ACL 2023; the same, Rationalizing Transformer Predictions via
End-to-end Differentiable Self-training (RTP), EMNLP 2024.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

REACH = 3.0
"""Widths to either side that a bump is summed over; it has fallen to 1% there."""


def bumps(heights: Tensor, widths: Tensor, largest: float, part: Tensor | None = None) -> Tensor:
    """The sum of the bumps at each token.

    Args:
        heights: [B, R, N], 0 where there is no bump, as on padding.
        widths: [B, R, N], tokens, in (0, largest].
        largest: upper bound of the widths; decides how far bumps are summed.
        part: int64 [B, N], the part of the sequence that each token is in, from 0; a bump reaches
            over its own part. None: over the whole sequence.

    Returns:
        [B, R, N].
    """
    if heights.ndim != 3 or widths.shape != heights.shape:
        raise ValueError(f"heights {tuple(heights.shape)}, widths {tuple(widths.shape)}")
    if not heights.shape[-1]:
        return heights
    reach = math.ceil(REACH * largest)
    distance = torch.arange(-reach, reach + 1, device=heights.device, dtype=heights.dtype)  # [W]
    scaled = heights / (widths * math.sqrt(math.pi)).sqrt()
    sharpness = -0.5 / widths.square()
    # The W tokens around each one, [B, R, N, W]: views, nothing is copied.
    near = F.pad(scaled, (reach, reach)).unfold(-1, 2 * reach + 1, 1)
    sharp = F.pad(sharpness, (reach, reach)).unfold(-1, 2 * reach + 1, 1)
    bells = torch.exp(sharp * distance.square())
    if part is not None:
        others = F.pad(part, (reach, reach), value=-1).unfold(-1, 2 * reach + 1, 1)
        bells = bells * (others == part[..., None])[:, None]
    return (near * bells).sum(-1)
