"""Contract tests that anybody can run on a policy of their own.

    from rss_rl.testing import check_policy
    check_policy(MyPolicy(PolicySetup(8, "relu", PolicyConfig())), inputs=8)

Legend: K samples, B sentences, N tokens, E embedding size.
"""

from __future__ import annotations

__all__ = ["check_metric", "check_policy", "check_reward_model"]

import pickle
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from rss_rl.errors import PolicyError
from rss_rl.metrics.contract import check_metric
from rss_rl.policies.adapters import adapt
from rss_rl.policies.contract_case import Case
from rss_rl.policies.contract_empty import check_empty
from rss_rl.policies.protocol import (
    FactorisedPolicy,
    RelaxedPolicy,
    StochasticPolicy,
)
from rss_rl.reward_models.contract import check_reward_model
from rss_rl.types import ROLES

_FREQUENCY_DRAWS = 20_000
_LARGEST_Z = 6.0
_SEEDS = range(3)


def check_policy(policy: nn.Module, inputs: int) -> None:
    """Check all that a run relies on, of each capability that the policy has.

    Shapes and masks; the log-prob against the frequency of selections; that every parameter gets
    gradient; equal selections for equal uniforms; pickling; a sentence alone and in a padded batch;
    sentences without a token and a batch without a sentence. Takes a second or two.

    Args:
        policy: with at least one capability of `rss_rl.policies.protocol`; its weights do not
            change.
        inputs: E, the size of embeddings that it reads.

    Raises:
        PolicyError: the first promise that it breaks, with what to do about it.
        ConfigError: it is no policy at all.
    """
    whole = adapt(policy, where="check_policy")
    kind = type(policy).__name__
    for seed in _SEEDS:
        case = Case(whole, kind, inputs, seed)
        _check_threshold(case)
        _check_sample(case)
        if isinstance(whole, StochasticPolicy):
            _check_log_prob(case)
        if isinstance(whole, FactorisedPolicy):
            _check_logits(case)
        if isinstance(whole, RelaxedPolicy):
            _check_gates(case)
        _check_alone(case)
        _check_numbers_alone(case)
        _check_pickled(case)
        check_empty(case)
    if isinstance(whole, StochasticPolicy):
        _check_frequency(Case(whole, kind, inputs, seed=7, lengths=(2, 1)))


def _check_threshold(case: Case) -> None:
    """The test-time selection."""
    name, policy = "threshold", case.policy
    chosen = case.twice(name, lambda: policy.threshold(case.shown, case.valid))
    case.selection(name, chosen, len(case.valid))
    chance = policy.probabilities(case.shown, case.valid).detach()
    case.shape("probabilities", chance, *chosen.shape)
    case.unit("probabilities", chance)


def _check_sample(case: Case) -> None:
    """Selections that are drawn."""
    policy, kept = case.policy, case.shown.clone()
    chosen = case.twice(
        "sample", lambda: policy.sample(case.shown, case.valid, case.uniforms).selection
    )
    case.selection("sample's selection", chosen, *case.uniforms.shape[:2])
    case.require(torch.equal(kept, case.shown), "sample changed its arguments", "Work on a copy")


def _check_log_prob(case: Case) -> None:
    """Log-probs of what was drawn, from both sides, and their gradient."""
    drawn = case.policy.sample(case.shown, case.valid, case.uniforms)
    evaluated = case.policy.evaluate(case.shown, case.valid, drawn.selection)
    case.shape("evaluate's entropy", evaluated.entropy, len(case.valid))
    for name, value in (("sample", drawn.log_prob), ("evaluate", evaluated.log_prob)):
        case.shape(f"{name}'s log_prob", value, *case.uniforms.shape)
        case.zero_on_padding(f"{name}'s log_prob", value.detach())
        case.require(
            torch.isfinite(value).all() and value.max() <= 1e-6,
            f"{name}'s log_prob of what was drawn is not finite or above 0",
            "Compute it with logsigmoid of the logits",
        )
    case.require(
        torch.allclose(drawn.log_prob, evaluated.log_prob, atol=1e-5),
        "evaluate's log_prob is not that of sample",
        "Both must be log p of the same bits: the learner compares them",
    )
    if list(case.policy.parameters()):
        # Of the entropy no gradient is asked where it has no weight.
        total = evaluated.log_prob.square().sum()
        case.gradient("evaluate's log_prob", total)
        case.gradient("evaluate's log_prob and entropy", total + evaluated.entropy.sum())


def _check_logits(case: Case) -> None:
    """A factorised policy's bits are those of its logits."""
    policy: Any = case.policy
    logits = policy.logits(case.shown, case.valid)
    roles = logits.shape[1] if logits.ndim == 3 else 0
    case.require(roles in (1, 2), "logits are not [B, R, N] with R of 1 or 2", "See logits")
    case.shape("logits", logits, len(case.valid), roles, case.valid.shape[1])
    chance = torch.sigmoid(logits.detach())
    bits = (case.uniforms[:, :, :roles] < chance) & case.valid[:, None]
    drawn = policy.sample(case.shown, case.valid, case.uniforms).selection
    case.require(
        torch.equal(drawn, bits.expand(-1, -1, ROLES, -1)),
        "sample does not draw uniform < sigmoid(logit)",
        "arm, disarm and flip rely on it; without `logits` they are not offered",
    )


def _check_gates(case: Case) -> None:
    """Gates of a relaxed policy, which stand for the selection that is drawn."""
    policy: Any = case.policy
    gates = case.twice("gates", lambda: policy.gates(case.shown, case.valid, case.uniforms))
    case.shape("gates", gates, *case.uniforms.shape)
    case.unit("gates", gates.detach())
    drawn = policy.sample(case.shown, case.valid, case.uniforms).selection
    case.require(
        torch.equal(gates > 0, drawn),
        "the gates that are not 0 are not the selection that sample draws",
        "A gate of exactly 0 is a token that is not selected",
    )
    if list(case.policy.parameters()):
        weights = torch.linspace(1, 2, gates.numel()).view_as(gates)
        case.gradient("gates", (gates * weights).sum())
        chance = policy.probabilities(case.shown, case.valid)
        case.gradient("probabilities", (chance * weights[0]).sum())


def _check_alone(case: Case) -> None:
    """A sentence alone gets what it gets in a padded batch."""
    for row, length in enumerate(case.lengths):
        one = slice(row, row + 1)
        shown, valid = case.shown[one, :length], case.valid[one, :length]
        drawn = case.uniforms[:, one, :, :length]
        pairs = {
            "threshold": (
                case.policy.threshold(shown, valid),
                case.policy.threshold(case.shown, case.valid)[one, :, :length],
            ),
            "sample": (
                case.policy.sample(shown, valid, drawn).selection,
                case.policy.sample(case.shown, case.valid, case.uniforms).selection[
                    :, one, :, :length
                ],
            ),
        }
        for name, (lonely, together) in pairs.items():
            case.require(
                torch.equal(lonely, together),
                f"{name} of a sentence of {length} tokens depends on the padding around it",
                "Look at real tokens alone: mask sums, means, maxima and recurrences",
            )


def _check_numbers_alone(case: Case) -> None:
    """Probabilities and gates of a sentence alone are those in a padded batch, up to rounding."""
    policy: Any = case.policy
    calls: dict[str, Callable[..., Tensor]] = {
        "probabilities": lambda shown, valid, drawn: policy.probabilities(shown, valid)[None]
    }
    if isinstance(policy, RelaxedPolicy):
        calls["gates"] = policy.gates
    for name, call in calls.items():
        whole = call(case.shown, case.valid, case.uniforms)  # [K or 1, B, 2, N]
        for row, length in enumerate(case.lengths):
            one = slice(row, row + 1)
            drawn = case.uniforms[:, one, :, :length]
            lonely = call(case.shown[one, :length], case.valid[one, :length], drawn)
            case.require(
                torch.allclose(lonely, whole[:, one, :, :length], atol=1e-4),
                f"{name} of a sentence of {length} tokens depend on the padding around it",
                "Look at real tokens alone: mask sums, means, maxima and recurrences",
            )


def _check_pickled(case: Case) -> None:
    """It crosses processes whole."""
    try:
        copy = pickle.loads(pickle.dumps(case.policy))
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise PolicyError(
            f"it cannot be pickled: {error}",
            where=case.kind,
            remedy="Keep lambdas, local classes and open files out of its attributes",
        ) from error
    case.require(
        torch.equal(
            copy.sample(case.shown, case.valid, case.uniforms).selection,
            case.policy.sample(case.shown, case.valid, case.uniforms).selection,
        ),
        "its pickled copy draws other selections",
        "Keep what it needs in parameters, buffers and attributes",
    )


def _check_frequency(case: Case) -> None:
    """exp(log_prob) of each selection that occurs is how often it occurs."""
    uniforms = case.draw(_FREQUENCY_DRAWS, seed=11)
    with torch.no_grad():
        drawn = case.policy.sample(case.shown, case.valid, uniforms)
    for row in range(len(case.lengths)):
        bits = drawn.selection[:, row].flatten(1).to(torch.uint8)
        log_prob = drawn.log_prob[:, row].sum((-1, -2))
        seen, which, counts = bits.unique(dim=0, return_inverse=True, return_counts=True)  # type: ignore[no-untyped-call]
        share = counts / _FREQUENCY_DRAWS
        chance = torch.zeros(len(seen)).scatter_(0, which, log_prob.exp().float())
        error = (chance * (1 - chance) / _FREQUENCY_DRAWS).clamp_min(1e-8).sqrt()
        worst = ((share - chance).abs() / error).max()
        case.require(
            worst < _LARGEST_Z and chance.sum() < 1 + 1e-3,
            f"the log-prob of a selection is not that of its frequency: {worst:.1f} standard errors"
            f" apart in {_FREQUENCY_DRAWS} draws",
            "log_prob must be that of the bits as `uniforms` decide them; a bit shared by both"
            " roles counts once",
        )
