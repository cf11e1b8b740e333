"""Batches as tensors on a device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from rss_rl.types import Array, Batch


class TensorBatch(NamedTuple):
    """A batch's arrays under the same names, on a device; states are float32.

    tokens  S x int64 [B, N_s], see `Batch.ids`
    rows    int64 [B] of the batch, an array; None where nothing is drawn for it
    shard_of  examples of the global batch that this is a learner's shard of; None: it is all of it
    weights  float32 [B], how often each example counts for both learners; None: once
    """

    tokens: list[Tensor]
    valid: list[Tensor]
    labels: Tensor
    marks: Tensor | None = None
    states: list[Tensor] | None = None
    rows: Array | None = None
    shard_of: int | None = None
    weights: Tensor | None = None

    @property
    def global_size(self) -> int:
        """Examples of the global batch, over which every learner's sums are means."""
        return len(self.labels) if self.shard_of is None else self.shard_of

    def weighed(self, values: Tensor) -> Tensor:
        """Values [..., B], or [..., K * B] (sample-major), each times the weight of its example."""
        if self.weights is None:
            return values
        return values * self.weights.repeat(values.shape[-1] // max(1, len(self.weights)))


def to_tensors(arrays: Sequence[Array], device: torch.device) -> list[Tensor]:
    """Each array as a tensor on `device`; on the CPU it shares the array's memory."""
    return [torch.from_numpy(array).to(device) for array in arrays]


def tensor_batch(batch: Batch, device: torch.device) -> TensorBatch:
    """The parts of a batch that classifier and policy read, on `device`."""
    (labels,) = to_tensors([batch.labels], device)
    marks = None if batch.marks is None else torch.from_numpy(batch.marks).to(device)
    tokens, valid = to_tensors(batch.ids, device), to_tensors(batch.valid, device)
    states = None
    if batch.states is not None:
        states = [part.float() for part in to_tensors(batch.states, device)]
    return TensorBatch(tokens, valid, labels, marks, states, batch.rows)
