"""A reward that is bounded: by how much the right class is ahead of the best wrong one."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from pydantic import Field
from torch import nn

from rss_rl.components import Component, Options
from rss_rl.reward_models.likelihood import ClassifierReward
from rss_rl.reward_models.reward_model import RewardSetup
from rss_rl.types import Array, Batch


class MarginOptions(Options):
    """Where the reward ends."""

    limit: float = Field(default=2.0, gt=0, description="Margins count up to this, and from minus.")


class MarginReward(ClassifierReward):
    """clip(logit of the label - largest other logit, -limit, limit)."""

    def __init__(self, classifier: nn.Module, device: str, limit: float) -> None:
        super().__init__(classifier, device)
        self._limit = limit

    def score(self, batch: Batch, selections: Sequence[Array]) -> dict[str, Array]:
        """`margin`, float32 [M]."""
        logits = self.logits(batch, selections)
        right = torch.from_numpy(batch.labels).to(logits.device)[:, None]
        own = logits.gather(1, right)[:, 0]
        other = logits.scatter(1, right, -torch.inf).amax(1)
        margin = (own - other).clamp(-self._limit, self._limit)
        return {"margin": margin.float().cpu().numpy()}


def _build(setup: RewardSetup, options: MarginOptions) -> MarginReward:
    assert setup.classifier is not None  # as the capability says
    return MarginReward(setup.classifier, setup.device, options.limit)


MARGIN = Component(
    kind="reward_model", name="margin", help="Lead of the right class over the best wrong one.",
    build=_build, options=MarginOptions, capabilities=frozenset({"classifier"}),
)  # fmt: skip
