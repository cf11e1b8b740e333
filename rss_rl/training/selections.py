"""Selections that the classifier learns from, what a policy can learn, and the share it reaches.

Random selections are of random share:

    share ~ U(0, 1) for each sentence and role,  bit_i = [u_i < share],  u_i ~ U(0, 1)

so that the number of kept tokens is uniform, too. A classifier trained only on full texts would
assign meaningless likelihoods, and hence rewards, to selections.

Legend: K selections an example, B examples of this learner's shard, S sentences, N_s tokens of slot
s, R = 1 or 2 bits drawn for a token.
Source: Jethani, Sudarshan, Aphinyanaphongs and Ranganath, "Have we learned to explain?", AISTATS
2021 (REAL-X and EVAL-X, classifiers of random masks).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from rss_rl.config import RunConfig
from rss_rl.errors import ConfigError
from rss_rl.learners.share_control import share_margin
from rss_rl.models.inputs import TensorBatch
from rss_rl.policies.build import check_distribution
from rss_rl.policies.distributions import Certain, SelectionDistribution
from rss_rl.policies.policy import PolicyInputs
from rss_rl.reading.device import autocast
from rss_rl.reading.models import Models
from rss_rl.seeding import keyed_uniforms, stream_key
from rss_rl.types import ROLES, Array, Batch

_NEAR_HALF = 0.01
"""Probabilities this close to one half may be rounded to either side."""


def check_learns(models: Models, config: RunConfig, batch: TensorBatch) -> None:
    """Refuse a phase that trains a policy which cannot learn.

    Args:
        batch: some examples, for which the policy is asked.

    Raises:
        ConfigError: it has no parameters, or only returns the tokens it keeps; or a target share is
            set, and it does not keep tokens with probability over one half.
    """
    if not any(phase.policy for phase in config.phases):
        return
    where = f"policy '{config.policy.name}'"
    with models.evaluating(), torch.no_grad():
        distribution = models.distributions(batch)[0]
    check_distribution(distribution, config.policy.capabilities, where)
    if isinstance(distribution, Certain) or not list(models.policy.parameters()):
        raise ConfigError(
            f"{where} has nothing to learn: it has no parameters, or only returns the tokens it"
            " keeps",
            where="phases",
            remedy="Set policy: false in all phases, or return another distribution",
        )
    if config.reward.target_share is not None:  # fail now, not after an hour of warm-up
        _steerable_chances(distribution)


def _steerable_chances(distribution: SelectionDistribution) -> Array:
    """Probabilities [B, 2, N] of a policy that keeps tokens with probability over one half.

    Raises:
        ConfigError: it keeps tokens by another rule. The margins of a target share assume one half,
            so the share would miss its target.
    """
    chances: Array = distribution.steered.detach().float().cpu().numpy()
    if type(distribution).mode is SelectionDistribution.mode:  # by this rule
        return chances
    clear = np.abs(chances - 0.5) > _NEAR_HALF
    wrong = int(((distribution.mode.cpu().numpy() != (chances > 0.5)) & clear).sum())
    if wrong:
        raise ConfigError(
            "a target share needs a policy that keeps tokens with probability over one half, and"
            f" this one keeps by another rule: {wrong} of {int(clear.sum())} bits differ",
            where="reward.target_share",
            remedy="Set reward.sparsity_cost, let `mode` keep where `probs` > 0.5, or return from"
            " `steered` the probabilities that it keeps by",
        )
    return chances


def thresholded_selections(
    models: Models, config: RunConfig, batch: TensorBatch
) -> list[torch.Tensor]:
    """What the policy selects at test time, S x bool [B, 2, N_s]."""
    precise = autocast(batch.labels.device, config.learner.precision)
    with models.evaluating(), torch.no_grad(), precise:
        return [distribution.mode for distribution in models.distributions(batch)]


def reached_share(
    models: Models, config: RunConfig, inputs: Sequence[PolicyInputs], target: float
) -> dict[str, float]:
    """Share and margins of a batch's thresholded selections, by metric tag.

    Computed on the global batch, so that all learners of a group agree, and with the newest policy,
    however old the rollouts are.

    Args:
        inputs: what the policy reads of each of S sentences. target: share of the tokens to keep.

    Raises:
        ConfigError: the policy does not keep tokens with probability over one half.
    """
    precise = autocast(inputs[0].valid.device, config.learner.precision)
    # As in the evaluation, so that both keep the same tokens.
    with models.evaluating(), torch.no_grad(), precise:
        chances = [_steerable_chances(models.policy(each)) for each in inputs]
    valid = [each.valid.cpu().numpy() for each in inputs]
    return share_margin(chances, valid, target)


def random_selections(
    seed: int,
    update: int,
    batch: Batch,
    bits: int,
    share: float,
    sampled: Sequence[Tensor] | None,
    device: torch.device,
) -> list[Tensor]:
    """The sampled selections of an update, with random ones for some examples, S x [B, 2, N_s].

    What is random depends only on the number of the update and on each row.

    Args:
        seed: of the run. update: its number.
        bits: R, drawn for a token; 1 = one bit for both roles.
        share: of the examples that use a random selection.
        sampled: S x [B, 2, N_s], bool or float gates; None = all examples use random selections.
    """
    uniforms = keyed_uniforms(stream_key(seed, "random example", update), batch.rows, 1, 1, 1)
    replaced = torch.from_numpy(uniforms[0] < share).to(device)  # [B, 1, 1]
    selections = []
    for slot, valid in enumerate(batch.valid):
        key = stream_key(seed, "random selection", update, slot)
        uniforms = keyed_uniforms(key, batch.rows, 1, bits, valid.shape[1] + 1)[0]
        drawn = uniforms[..., 1:] < uniforms[..., :1]  # [B, R, N_s]
        kept = np.broadcast_to(drawn, (len(batch), ROLES, valid.shape[1])) & valid[:, None]
        random = torch.from_numpy(np.ascontiguousarray(kept)).to(device)
        if sampled is not None:
            random = torch.where(replaced, random.to(sampled[slot].dtype), sampled[slot])
        selections.append(random)
    return selections
