"""Bidirectional recurrence, whose backward direction starts at each sequence's own end.

Legend: M sequences, N tokens, D input features, H hidden size of each direction.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rss_rl.ops.masking import gather


def _recurs_in_float32(device: torch.device) -> bool:
    """Whether autocast requests a precision in which torch has no LSTM here.

    On processors without AVX-512, oneDNN raises an error for bfloat16.
    """
    rounded = device.type == "cpu" and torch.is_autocast_enabled("cpu")
    return rounded and torch.backends.cpu.get_cpu_capability() in ("DEFAULT", "AVX2")


class Bidirectional(nn.Module):
    """h_i = [forward h_i; backward h_i] of torch's LSTM or GRU, one layer each.

    The backward one reads each sequence from its last token, so that padding comes last there too
    and affects nothing. That is cheaper than torch's packed sequences, with which the gradient of a
    GRU takes O(N^2) time on a CPU.

    Args:
        cell: `nn.LSTM` or `nn.GRU`. inputs: D. hidden: H.
    """

    def __init__(self, cell: type[nn.LSTM] | type[nn.GRU], inputs: int, hidden: int) -> None:
        super().__init__()
        self.ahead = cell(inputs, hidden, batch_first=True)
        self.back = cell(inputs, hidden, batch_first=True)
        self.output_size = 2 * hidden
        for parameter in self.parameters():
            if parameter.ndim == 1:
                nn.init.zeros_(parameter)

    def matrices(self) -> list[nn.Parameter]:
        """The weights without the biases, which are 0; a matrix holds those of all gates."""
        return [parameter for parameter in self.parameters() if parameter.ndim == 2]

    def forward(self, values: Tensor, valid: Tensor) -> Tensor:
        """[M, N, D] and bool [M, N] (valid tokens first) to [M, N, 2 H]; zeros on padding."""
        if not valid.numel():
            # Reads one padding token, as every learner of a group must have a gradient of every
            # parameter, even if its shard is empty.
            longer = F.pad(values, (0, 0, 0, 1, 0, 1))
            read = self(longer, valid.new_zeros(longer.shape[:2]))
            return read[: len(valid), : valid.shape[1]]  # type: ignore[no-any-return]
        last = valid.sum(1, keepdim=True) - 1
        turned = (last - torch.arange(valid.shape[1], device=valid.device)).clamp_min(0)  # [M, N]
        dtype, back = values.dtype, gather(values, turned)
        if _recurs_in_float32(values.device):
            with torch.autocast("cpu", enabled=False):
                forward, _ = self.ahead(values.float())
                backward, _ = self.back(back.float())
        else:
            forward, _ = self.ahead(values)
            backward, _ = self.back(back)
        both = torch.cat([forward, gather(backward, turned)], -1)
        return both.to(dtype) * valid[..., None]  # autocast may have lowered the precision


def both_ends(hidden: Tensor, valid: Tensor) -> Tensor:
    """[forward h_n; backward h_1] of a `Bidirectional`, [M, N, 2 H] to [M, 2 H]; 0 if empty."""
    if not valid.shape[1]:
        return hidden.sum(1)
    size = hidden.shape[-1] // 2
    last = (valid.sum(1, keepdim=True) - 1).clamp_min(0)
    return torch.cat([gather(hidden, last)[:, 0, :size], hidden[:, 0, size:]], -1)
