"""A bidirectional GRU whose backward direction starts at each sequence's own last token.

Legend: M sequences, N tokens, D features that come in, H hidden size of each direction.
"""

from __future__ import annotations

__all__ = ["BiGRU", "both_ends"]

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rss_rl.ops.masking import gather

_SPREAD = 0.1


class BiGRU(nn.Module):
    """h_i = [forward h_i; backward h_i]; weights drawn from N(0, 0.1^2), biases zero.

    Source of the initial weights: Brarda, Yeres and Bowman, Sequential Attention (2017), section 4.
    """

    def __init__(self, inputs: int, hidden: int) -> None:
        super().__init__()
        self.ahead = nn.GRU(inputs, hidden, batch_first=True)
        self.back = nn.GRU(inputs, hidden, batch_first=True)
        self.output_size = 2 * hidden
        for parameter in self.parameters():
            if parameter.ndim == 1:
                nn.init.zeros_(parameter)
            else:
                nn.init.normal_(parameter, std=_SPREAD)

    def forward(self, values: Tensor, valid: Tensor) -> Tensor:
        """[M, N, D] and bool [M, N] (valid tokens first) to [M, N, 2 H]; zeros on padding."""
        if not valid.shape[1]:  # torch's GRU wants a token; of one on padding nothing comes out
            longer = F.pad(values, (0, 0, 0, 1))
            return self(longer, valid.new_zeros(len(valid), 1))[:, :0]  # type: ignore[no-any-return]
        # Read from its last token a sequence has its padding behind it here too, where it reaches
        # nothing; that costs less than sequences packed by their lengths.
        last = valid.sum(1, keepdim=True) - 1
        turned = (last - torch.arange(valid.shape[1], device=valid.device)).clamp_min(0)  # [M, N]
        # A recurrence in lower precision would round its own rounding again at every token.
        with torch.autocast(values.device.type, enabled=False):
            exact = values.to(next(self.parameters()).dtype)
            forward, _ = self.ahead(exact)
            backward, _ = self.back(gather(exact, turned))
        both = torch.cat([forward, gather(backward, turned)], -1)
        return both * valid[..., None]


def both_ends(hidden: Tensor, valid: Tensor) -> Tensor:
    """[forward h_n; backward h_1] of a `BiGRU`'s [M, N, 2 H]: [M, 2 H], zeros of no token."""
    if not valid.shape[1]:
        return hidden.sum(1)
    size = hidden.shape[-1] // 2
    last = (valid.sum(1, keepdim=True) - 1).clamp_min(0)
    return torch.cat([gather(hidden, last)[:, 0, :size], hidden[:, 0, size:]], -1)
