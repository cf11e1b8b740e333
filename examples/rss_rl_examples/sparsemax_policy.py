"""A policy whose gates are sparsemax of a score a word: it keeps what gets weight."""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Tensor, nn

from rss_rl.components import Component, Options
from rss_rl.policies.distributions import Gates
from rss_rl.policies.policy import PolicyInputs, PolicySetup


def sparsemax(scores: Tensor, valid: Tensor) -> Tensor:
    """Euclidean projection of scores [..., N] onto the simplex over the valid tokens."""
    ordered = scores.masked_fill(~valid, -torch.inf).sort(-1, descending=True).values
    rank = torch.arange(1, scores.shape[-1] + 1, device=scores.device)
    sums = ordered.where(ordered.isfinite(), 0.0).cumsum(-1)
    support = (1 + rank * ordered > sums) & ordered.isfinite()
    size = support.sum(-1, keepdim=True)
    line = (sums.gather(-1, (size - 1).clamp_min(0)) - 1) / size.clamp_min(1)
    return (scores - line).clamp_min(0) * (valid & (size > 0))


class SparsemaxOptions(Options):
    """How many words are kept."""

    temperature: float = Field(default=0.1, gt=0, description="Higher keeps more words.")


class SparsemaxGates(Gates):
    """Gates that are not drawn: every sample is the same. [B, 2, N]"""

    def __init__(self, gates: Tensor) -> None:
        self._gates = gates

    @property
    def probs(self) -> Tensor:
        """The gates, which the sparsity cost is charged on."""
        return self._gates

    @property
    def mode(self) -> Tensor:
        """The words with a gate."""
        return self._gates > 0

    def rsample(self, uniforms: Tensor) -> Tensor:
        """See `SelectionDistribution`."""
        return self._gates.expand(uniforms.shape)


class SparsemaxPolicy(nn.Module):
    """gate_i = sparsemax(score / temperature)_i over the largest one, the same for both roles."""

    def __init__(self, setup: PolicySetup, options: SparsemaxOptions) -> None:
        super().__init__()
        self.score = nn.Linear(setup.features, 1)
        self._temperature = options.temperature

    def forward(self, inputs: PolicyInputs) -> SparsemaxGates:
        """See `rss_rl.policies.policy`."""
        if not inputs.valid.shape[-1]:
            return SparsemaxGates(inputs.features.new_zeros(len(inputs.valid), 2, 0))
        weights = sparsemax(self.score(inputs.features)[..., 0] / self._temperature, inputs.valid)
        gates = weights / weights.amax(-1, keepdim=True).clamp_min(1e-12)
        return SparsemaxGates(gates[:, None].expand(-1, 2, -1))


SPARSEMAX = Component(
    kind="policy", name="sparsemax", help="Keeps the words that sparsemax gives weight.",
    build=SparsemaxPolicy, options=SparsemaxOptions,
    capabilities=frozenset({"learns", "gates"}), source="Martins and Astudillo, ICML 2016",
)  # fmt: skip
