"""The walk over examples: batch, what the policy makes of it, what the classifier makes of that.

Dev evaluation, scores of a run, agreement with people, reports, TensorBoard's examples, predictions
and the server differ in what they do with each batch.

Legend: B examples, S sentences, N_s tokens of slot s, C classes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from rss_rl.config import RunConfig
from rss_rl.data.length_buckets import plain_batches
from rss_rl.models.inputs import TensorBatch, tensor_batch
from rss_rl.policies.distributions import SelectionDistribution
from rss_rl.reading.models import Models
from rss_rl.types import ROLES, Array, Batch, ExampleSource


@dataclass(frozen=True)
class Scanned:
    """A batch on its way: as arrays, as tensors on the device of the models, and read by them."""

    models: Models
    batch: Batch
    tensors: TensorBatch

    @classmethod
    def of(cls, models: Models, batch: Batch, device: torch.device) -> Scanned:
        """A batch on the device of the models."""
        return cls(models, batch, tensor_batch(batch, device))

    @cached_property
    def distributions(self) -> list[SelectionDistribution]:
        """What the policy returns, one for each of S sentences; computed where first asked for."""
        return self.models.distributions(self.tensors)

    @property
    def thresholded(self) -> list[Tensor]:
        """What the policy selects at test time, S x bool [B, 2, N_s]."""
        return [each.mode for each in self.distributions]

    @property
    def everything(self) -> list[Tensor]:
        """Every token in both roles, S x bool [B, 2, N_s]."""
        return [valid[:, None].expand(-1, ROLES, -1) for valid in self.tensors.valid]

    def logits(self, selections: Sequence[Tensor]) -> Tensor:
        """The classifier's, [B, C], under selections S x bool [B, 2, N_s]."""
        tensors = self.tensors
        logits: Tensor = self.models.classifier(
            tensors.tokens, tensors.valid, selections, tensors.marks
        )
        return logits


def scan(
    models: Models,
    examples: ExampleSource,
    config: RunConfig,
    device: torch.device,
    rows: Array | None = None,
) -> Iterator[Scanned]:
    """The examples in batches of the configured size, within a mode of evaluation of the caller.

    Args:
        rows: int64, those to walk over; None: all.
    """
    bounds = config.evaluation.batch_size, config.batch_tokens
    lengths = examples.lengths() if rows is None else examples.lengths()[rows]
    for indices in plain_batches(lengths, *bounds):
        batch = examples.batch(indices if rows is None else rows[indices])
        yield Scanned.of(models, batch, device)
