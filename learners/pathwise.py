"""The pathwise learner: updates a relaxed policy by the gradient of the classifier's loss.

Legend: K gates an example, B examples of this learner's shard, S sentences, N_s tokens of slot s.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor, nn
from torch.func import functional_call

from rss_rl.config import EncoderChoice, RewardConfig, RunConfig
from rss_rl.errors import ConfigError
from rss_rl.learners.group import ALONE, Group
from rss_rl.learners.optim import GradientStep
from rss_rl.models.inputs import TensorBatch
from rss_rl.models.protocol import Classifier
from rss_rl.ops.losses import role_charge
from rss_rl.ops.matmul import products_in
from rss_rl.ops.relaxed import expected_cost
from rss_rl.policies.inputs import policy_inputs
from rss_rl.policies.protocol import Policy
from rss_rl.types import DEPENDENT, HEAD

_CERTAIN = 1e-6


class PathwiseStats(NamedTuple):
    """Means of one update over the global batch.

    objective       sum of the scores - cost, of an example, without the entropy cost
    log_likelihood  under the gates, in nats
    complement      the penalty for what the unselected tokens reveal about the label, as a score
    cost            expected sparsity and coherence cost, summed over the sentences
    coherence       the coherence part of the cost
    entropy         of the bits [gate > 0], in nats a bit
    heads, dependents, kept  shares of the tokens with nonzero gates
    gradient_norm   before clipping
    """

    objective: float
    log_likelihood: float
    complement: float
    cost: float
    coherence: float
    entropy: float
    heads: float
    dependents: float
    kept: float
    gradient_norm: float


@runtime_checkable
class GatedReward(Protocol):
    """A reward model with the capability `gates`: its score is differentiable in the gates."""

    def gated_losses(self, batch: TensorBatch, gates: Sequence[Tensor]) -> Tensor:
        """The negative score in nats, [K * B], of gates S x [K, B, 2, N_s]; weights are fixed."""


def check_gated(
    classifier: Classifier, encoder: EncoderChoice, reward: GatedReward | None = None
) -> None:
    """Refuse a classifier as reward model that does not take gates.

    Raises:
        ConfigError: naming what does not fit.
    """
    if reward is None and not (encoder.can("gates") and classifier.takes_gates):
        raise ConfigError(
            "this model cannot weight its tokens by gates, which the policy's gradient needs",
            where="model.encoder",
            remedy="Use an encoder with the capability `gates` on one or two sentences, see"
            " `rss-rl components encoders`, or an estimator that learns from rewards",
        )


class _Objective(nn.Module):
    """Sums over a shard: loss, entropy, and statistics."""

    def __init__(self, policy: Policy, model: GatedReward, reward: RewardConfig) -> None:
        super().__init__()
        self.policy = policy
        self._model = (model,)  # a tuple, so that nn.Module does not register it
        self._reward = reward
        self._complement = float(reward.model.options.get("complement", 0.0))

    def forward(
        self,
        inputs: Sequence[Tensor],
        batch: TensorBatch,
        uniforms: Sequence[Tensor],
        charged: tuple[float, float] | None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Loss [] and entropy [], differentiable; sums [9] of the statistics."""
        gates, costs, turns, entropies, charges = [], [], [], [], []
        for vectors, valid, drawn in zip(inputs, batch.valid, uniforms, strict=True):
            found = self.policy(vectors, valid)
            gates.append(found.rsample(drawn))
            chance = found.probs  # [B, 2, N_s]
            costs.append(self._cost(chance, valid))
            turns.append(self._coherence(chance, valid))
            if charged is not None:
                charges.append(role_charge(chance, valid, charged).sum())
            entropies.append(_entropy(chance, valid))
        samples = len(gates[0])
        losses = self._losses(batch, gates)  # [K * B]
        known = self._left_out(batch, gates)  # [K * B]
        cost, entropy = torch.stack(costs).sum(), torch.stack(entropies).sum()
        with torch.no_grad():
            shares = _shares(gates, batch.valid)
            counted = losses.new_tensor([float(len(batch.labels))])
            parts = [
                -losses.sum() / samples,
                -known.sum() / samples,
                cost,
                torch.stack(turns).sum(),
                entropy,
            ]
            sums = torch.cat([torch.stack(parts), shares, counted]).double()
        constrained = torch.stack([cost, *charges]).sum()
        return (losses + known).sum() / samples + constrained, entropy, sums

    def _left_out(self, batch: TensorBatch, gates: Sequence[Tensor]) -> Tensor:
        """The penalty for the label's likelihood under the unselected tokens, [K * B]."""
        if not self._complement:
            return gates[0].new_zeros(len(gates[0]) * len(batch.labels))
        rest = [(1 - gate) * valid[:, None] for gate, valid in zip(gates, batch.valid, strict=True)]
        return self._complement * torch.exp(-self._losses(batch, rest))

    def _cost(self, chance: Tensor, valid: Tensor) -> Tensor:
        return expected_cost(
            chance,
            valid,
            sparsity=self._reward.fixed_cost,
            product=self._reward.penalty == "product",
            coherence=self._reward.coherence_cost,
        ).sum()

    @torch.no_grad()
    def _coherence(self, chance: Tensor, valid: Tensor) -> Tensor:
        """The coherence part of the cost, for the statistics."""
        weight = self._reward.coherence_cost
        if not weight:
            return chance.new_zeros(())
        return expected_cost(chance, valid, sparsity=0.0, product=False, coherence=weight).sum()

    def _losses(self, batch: TensorBatch, gates: Sequence[Tensor]) -> Tensor:
        """The reward model's losses, [K * B]."""
        (model,) = self._model
        return model.gated_losses(batch, gates)


class _Likelihood:
    """The run's classifier as reward model: without dropout or gradients of its weights."""

    def __init__(self, classifier: Classifier) -> None:
        self._classifier = classifier

    def gated_losses(self, batch: TensorBatch, gates: Sequence[Tensor]) -> Tensor:
        """See `GatedReward`."""
        classifier = self._classifier
        samples, training = len(gates[0]), classifier.training
        fixed = {name: value.detach() for name, value in classifier.named_parameters()}
        arguments = (
            [tokens.repeat(samples, 1) for tokens in batch.tokens],
            [valid.repeat(samples, 1) for valid in batch.valid],
            [gate.flatten(0, 1) for gate in gates],
        )
        classifier.eval()
        try:
            logits: Any = functional_call(classifier, fixed, arguments)
        finally:
            classifier.train(training)
        return classifier.losses(logits, batch.labels.repeat(samples))


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


class PathwiseLearner:
    """Descends E[-log p(y* | x*, gates)] + costs - entropy_cost * H over the policy's parameters.

    Gates are drawn here, without samplers, from uniform numbers that depend only on update and
    row, not on how the batch is sharded. The costs are expected costs in closed form.

    Args:
        classifier: of the run, with the word vectors that the policy reads.
        reward: scores the gates; None: the classifier, frozen and without dropout.
        autocast: dtype of matrix products, or None for float32.
        group: learners that share each batch; unusable after an error in one of them.

    Raises:
        ConfigError: see `check_gated`.
    """

    def __init__(
        self,
        policy: Policy,
        classifier: Classifier,
        config: RunConfig,
        autocast: torch.dtype | None,
        group: Group = ALONE,
        reward: GatedReward | None = None,
    ) -> None:
        check_gated(classifier, config.model.encoder, reward)
        self._policy, self._classifier = policy, classifier
        self._reads = config.policy.reads
        self._entropy_cost = config.learner.entropy_cost
        self._autocast, self._group = autocast, group
        self._objective = group.share(
            _Objective(policy, reward or _Likelihood(classifier), config.reward)
        )
        self.step = GradientStep("policy", policy, config.learner.policy)

    @torch.no_grad()
    def draw(self, batch: TensorBatch, uniforms: Sequence[Tensor]) -> list[Tensor]:
        """The first of the K gates, for training the classifier: S x [B, 2, N_s]."""
        with products_in(self._autocast, batch.labels.device):
            parts = zip(self._inputs(batch), batch.valid, uniforms, strict=True)
            return [self._policy(*pair).rsample(drawn[:1])[0] for *pair, drawn in parts]

    def _inputs(self, batch: TensorBatch) -> list[Tensor]:
        embedding = self._classifier.embedding
        with torch.no_grad():
            return policy_inputs(
                self._policy, embedding, batch.tokens, batch.valid, self._reads, batch.states
            )

    def apply(self) -> None:
        """Apply the gradients; until then no parameter has changed."""
        self.step.apply()

    def update(
        self,
        batch: TensorBatch,
        uniforms: Sequence[Tensor],
        *,
        number: int,
        charged: tuple[float, float] | None = None,
    ) -> PathwiseStats:
        """`learn` and `apply`."""
        stats = self.learn(batch, uniforms, number=number, charged=charged)
        self.apply()
        return stats

    def learn(
        self,
        batch: TensorBatch,
        uniforms: Sequence[Tensor],
        *,
        number: int,
        charged: tuple[float, float] | None = None,
    ) -> PathwiseStats:
        """Compute the gradients of an update; all learners of the group must call it.

        Args:
            batch: this learner's shard, which may be empty.
            uniforms: S x [K, B, 2, N_s] in (0, 1).
            number: of the update in the run, from 0, for the learning rate's decay.
            charged: lambda of heads and of dependents that is not part of the cost, or None.

        Raises:
            NonFiniteError: on a non-finite loss or gradient.
            LearnerError: another learner of the group died or hung.
        """
        with self._group.guard():
            with products_in(self._autocast, batch.labels.device):
                loss, entropy, sums = self._objective(self._inputs(batch), batch, uniforms, charged)
            totals = self._group.sum(sums).tolist()
            examples = totals[-1]
            likelihood, complement, cost, coherence, summed, heads, dependents, kept = (
                total / examples for total in totals[:-1]
            )
            bits = summed / len(batch.tokens)
            weight = self._entropy_cost / (examples * len(batch.tokens))
            norm = self.step.prepare(
                loss / examples - weight * entropy,
                number,
                cost - likelihood - complement - self._entropy_cost * bits,
            )
        return PathwiseStats(
            likelihood + complement - cost,
            likelihood,
            complement,
            cost,
            coherence,
            bits,
            heads,
            dependents,
            kept,
            norm,
        )
