"""Policy updates by the pathwise gradient: of the classifier's loss, through relaxed gates.

Legend: K gates an example, B examples of this learner's shard, S sentences, N_s tokens of slot s.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from functools import reduce

import torch
from torch import Tensor, nn

from rss_rl.components import Component
from rss_rl.config import RewardConfig
from rss_rl.learners.optim import GradientStep
from rss_rl.learners.updates import GatedReward, Gradients, RewardBatch, UpdateSetup
from rss_rl.models.inputs import TensorBatch
from rss_rl.ops.losses import role_cost
from rss_rl.ops.matmul import products_in
from rss_rl.ops.relaxed import expected_costs
from rss_rl.policies.policy import Policy, PolicyInputs
from rss_rl.reward_models.reward_model import COHERENCE, SPARSITY
from rss_rl.types import DEPENDENT, HEAD

_CERTAIN = 1e-6


class _Objective(nn.Module):
    """Sums over a shard: loss, entropy, and statistics."""

    def __init__(self, policy: Policy, model: GatedReward, reward: RewardConfig) -> None:
        super().__init__()
        self.policy = policy
        self._model = (model,)  # a tuple, so that nn.Module does not register it
        self._reward = reward

    def forward(
        self,
        inputs: Sequence[PolicyInputs],
        batch: TensorBatch,
        uniforms: Sequence[Tensor],
        price: tuple[float, float] | None,
    ) -> tuple[Tensor, Tensor, Tensor, list[str], list[Tensor]]:
        """Loss [] and entropy [], differentiable; sums of the statistics: [6], before them one of
        each term of the score, which are named; the first gates of each example, S x [B, 2, N_s].
        """
        gates, costs, turns, entropies, charges = [], [], [], [], []
        for read, valid, drawn in zip(inputs, batch.valid, uniforms, strict=True):
            distribution = self.policy(read)
            gates.append(distribution.rsample(drawn))
            chance = distribution.probs  # [B, 2, N_s]
            sparsity, coherence = expected_costs(
                chance,
                valid,
                sparsity=self._reward.fixed_cost,
                product=self._reward.penalty == "product",
                coherence=self._reward.coherence_cost,
            )
            costs.append(batch.weighed(sparsity + coherence).sum())
            turns.append(batch.weighed(coherence).sum())
            if price is not None:
                charges.append(role_cost(chance, valid, price, batch.weights))
            entropies.append(_entropy(chance, valid))
        samples = len(gates[0])
        (model,) = self._model
        scored = model.gated_scores(batch, gates)
        scores = {name: batch.weighed(score) for name, score in scored.items()}  # [K * B] each
        cost, entropy = torch.stack(costs).sum(), torch.stack(entropies).sum()
        with torch.no_grad():
            shares = _shares(gates, batch.valid)
            terms = [score.sum() / samples for score in scores.values()]
            parts = [*terms, cost, torch.stack(turns).sum(), entropy]
            sums = torch.cat([torch.stack(parts), shares]).double()
        score = reduce(operator.add, scores.values()).sum() / samples
        loss = torch.stack([cost, *charges]).sum() - score
        return loss, entropy, sums, list(scores), [each[0].detach() for each in gates]


def _entropy(chance: Tensor, valid: Tensor) -> Tensor:
    """Entropy of the bits [gate > 0], mean over a sentence's bits, summed over the sentences."""
    p = chance.clamp(_CERTAIN, 1 - _CERTAIN)  # the gradient at 0 and 1 is infinite
    by_bit = -(p * p.log() + (1 - p) * torch.log1p(-p)) * valid[:, None]
    return (by_bit.sum((-1, -2)) / (2 * valid.sum(-1)).clamp_min(1)).sum()


def _shares(gates: Sequence[Tensor], valid: Sequence[Tensor]) -> Tensor:
    """Shares of tokens kept as head, as dependent and as either, means over K, summed over B."""
    sizes = torch.stack([mask.sum(-1) for mask in valid]).sum(0).clamp_min(1)  # [B]
    kept = [gate > 0 for gate in gates]  # S x [K, B, 2, N_s]
    chosen = [
        [bits[:, :, HEAD] for bits in kept],
        [bits[:, :, DEPENDENT] for bits in kept],
        [bits.any(2) for bits in kept],
    ]
    counts = [torch.stack([bits.sum(-1) for bits in way]).sum(0) for way in chosen]  # 3 x [K, B]
    # In float64: sums over shards must equal those of the whole batch.
    return torch.stack([(count.double() / sizes).mean(0).sum() for count in counts])


class Pathwise:
    """Descends E[-score(gates)] + costs - entropy_cost * H over the policy's parameters.

    Gates are drawn here, without samplers, from uniform numbers that depend only on update and
    row, not on how the batch is sharded. The costs are expected costs in closed form.
    """

    def __init__(self, setup: UpdateSetup) -> None:
        assert setup.gated is not None
        assert setup.uniforms is not None
        self._uniforms = setup.uniforms
        self._entropy_cost = setup.learner.entropy_cost
        self._autocast, self._group = setup.autocast, setup.group
        objective = _Objective(setup.policy, setup.gated(), setup.reward)
        self._objective = setup.group.share(objective)
        self._step = GradientStep("policy", setup.policy, setup.learner.policy)

    def gradients(
        self,
        batch: TensorBatch,
        inputs: Sequence[PolicyInputs],
        rollout: RewardBatch | None,
        *,
        number: int,
        price: tuple[float, float] | None = None,
    ) -> Gradients:
        """See `PolicyUpdate`."""
        uniforms = self._uniforms(batch, number)
        with self._group.guard():
            with products_in(self._autocast, batch.labels.device):
                objective = self._objective(inputs, batch, uniforms, price)
            loss, entropy, sums, names, gates = objective
            totals, examples = self._group.sum(sums), batch.global_size
            weight = self._entropy_cost / (examples * len(batch.tokens))
            norm = self._step.prepare(number, (loss, 1 / examples), (entropy, -weight))

        def metrics(numbers: list[float]) -> dict[str, float]:
            *scores, cost, coherence, summed, heads, dependents, kept = (
                total / examples for total in numbers[:-1]
            )
            bits, objective = summed / len(batch.tokens), sum(scores) - cost
            self._step.clip(-objective - self._entropy_cost * bits, numbers[-1])
            terms = dict(zip(names, scores, strict=True))
            terms |= {COHERENCE: coherence} if coherence else {}
            return {f"reward/{name}": value for name, value in terms.items()} | {
                "policy/loss": -objective,
                "policy/gradient_norm": numbers[-1],
                "policy/entropy": bits,
                "reward/total": objective,
                f"reward/{SPARSITY}": cost - coherence,
                "selection/kept": kept,
                "selection/heads_kept": heads,
                "selection/dependents_kept": dependents,
            }

        return Gradients([totals, norm[None]], metrics, gates)

    def apply(self) -> None:
        """See `PolicyUpdate`."""
        self._step.apply()

    def state_dict(self) -> dict[str, Tensor]:
        """See `PolicyUpdate`."""
        return self._step.state_dict()

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """See `PolicyUpdate`."""
        self._step.load_state_dict(state)


PATHWISE = Component(
    kind="policy_update",
    name="pathwise",
    help="The gradient of the classifier's loss through the policy's gates, without samplers.",
    build=lambda setup, options: Pathwise(setup),
    capabilities=frozenset({"gates"}),
    source="Kingma and Welling 2014; Bengio et al. 2013 (straight-through)",
)
