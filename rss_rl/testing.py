"""Contract tests for your own components.

    from rss_rl.testing import check_policy
    check_policy(MY_POLICY, inputs=8, options={"scale": 2.0})

Legend: K samples, B sentences, N tokens, E embedding size.
"""

from __future__ import annotations

__all__ = [
    "check_encoder",
    "check_metric",
    "check_policy",
    "check_reward_model",
    "check_source",
]

import copy
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from rss_rl.components import Component
from rss_rl.data.source_contract import check_source
from rss_rl.errors import ConfigError, PolicyError
from rss_rl.metrics.contract import check_metric
from rss_rl.models.encoder_contract import check_encoder
from rss_rl.models.modes import evaluating
from rss_rl.policies.adapters import CertainPolicy, PolicyModule, adapt
from rss_rl.policies.contract_case import VOCABULARY, Case
from rss_rl.policies.contract_empty import check_empty
from rss_rl.policies.protocol import (
    FactorisedPolicy,
    PolicySetup,
    RelaxedPolicy,
    SteeredPolicy,
    StochasticPolicy,
    bits_per_token,
)
from rss_rl.reward_models.contract import check_reward_model
from rss_rl.types import ROLES

_FREQUENCY_DRAWS = 20_000
_LARGEST_Z = 6.0
_NEAR_HALF = 1e-3
_SEEDS = range(3)


def check_policy(
    policy: nn.Module | Component,
    inputs: int,
    options: Mapping[str, Any] | None = None,
) -> None:
    """Check everything that a run relies on, for each capability of the policy.

    Shapes and masks; log-probs against observed frequencies; a gradient for every parameter; equal
    selections for equal uniforms; pickling, saving and loading; unchanged buffers; a sentence alone
    and in a padded batch; empty sentences and an empty batch. All in evaluation mode, in which a
    run selects. Takes a second or two.

    Args:
        policy: a component of kind policy, whose capabilities are compared with what it builds; or
            a module with the methods of at least one capability of `rss_rl.policies.protocol`. Its
            weights do not change.
        inputs: E, the embedding size that it reads.
        options: of the component; None: its defaults.

    Raises:
        PolicyError: the first violation, with a remedy.
        ConfigError: it is not a policy, or lacks a method or a capability that its component
            declares.
    """
    if isinstance(policy, Component):
        whole, kind = _built(policy, inputs, options), policy.name
        can_share = policy.can("share", policy.parse(options or {}))
    else:
        if options is not None:
            raise ConfigError("options are for a component", where="check_policy")
        whole, kind = adapt(policy, where="check_policy"), type(policy).__name__
        can_share = False
    with evaluating(whole):
        _check(whole, kind, inputs, share=can_share)
        _check_buffers(Case(whole, kind, inputs, seed=0))
        other = _built(policy, inputs, options) if isinstance(policy, Component) else None
        _check_saved(Case(whole, kind, inputs, seed=0), other)


def _built(component: Component, inputs: int, options: Mapping[str, Any] | None) -> PolicyModule:
    if component.kind != "policy":
        raise ConfigError(
            f"'{component.name}' is a component of kind {component.kind}, not policy",
            where="check_policy",
        )
    parsed = component.parse(options or {})
    built = component.build(PolicySetup(inputs, "elu", VOCABULARY), parsed)
    return adapt(built, component.all_capabilities(parsed), where=f"policy '{component.name}'")


def _check(whole: PolicyModule, kind: str, inputs: int, *, share: bool) -> None:
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
        if share:
            _check_share(case)
        _check_alone(case)
        _check_pickled(case)
        check_empty(case)
    if isinstance(whole, StochasticPolicy):
        _check_frequency(Case(whole, kind, inputs, seed=7, lengths=(2, 1)))


def _check_share(case: Case) -> None:
    """With capability `share`, it keeps the tokens whose probability (or `steered`) is over 0.5."""
    rule = case.policy.probabilities
    if isinstance(case.policy, SteeredPolicy):
        rule = case.policy.steered
        case.unit("steered", rule(case.tokens, case.valid).detach())
    chance = rule(case.tokens, case.valid).detach()
    kept = case.policy.threshold(case.tokens, case.valid)
    clear = (chance - 0.5).abs() > _NEAR_HALF
    case.require(
        not ((kept != (chance > 0.5)) & clear).any(),
        "threshold does not keep exactly the tokens with probability over one half",
        'Let it keep where probabilities > 0.5, or drop "share" from the capabilities',
    )


def _check_buffers(case: Case) -> None:
    """Buffers must not change, because a run publishes parameters only."""
    learning = copy.deepcopy(case.policy).train()
    before = {name: value.clone() for name, value in learning.named_buffers()}
    _call_as_learners(Case(learning, case.kind, case.inputs, seed=0))
    for name, value in learning.named_buffers():
        case.require(
            torch.equal(before[name], value),
            f"its buffer '{name}' changes in training mode",
            "Samplers receive parameters only: keep no running statistics, as batch"
            " normalisation does",
        )


def _call_as_learners(case: Case) -> None:
    """Call the methods that learners call."""
    policy = case.policy
    policy.probabilities(case.tokens, case.valid)
    if isinstance(policy, StochasticPolicy):
        nothing = torch.zeros_like(case.uniforms, dtype=torch.bool)
        policy.evaluate(case.tokens, case.valid, nothing)
    if isinstance(policy, FactorisedPolicy):
        policy.logits(case.tokens, case.valid)
    if isinstance(policy, RelaxedPolicy):
        policy.gates(case.tokens, case.valid, case.uniforms)


def _check_saved(case: Case, other: PolicyModule | None) -> None:
    """Another policy of the same kind selects the same tokens after loading its state.

    Args:
        other: a newly built policy; None: a copy with zeroed parameters and saved buffers.
    """
    if other is None:
        other = copy.deepcopy(case.policy)
        for value in other.state_dict().values():
            value.zero_()
    other.eval()
    try:
        other.load_state_dict(case.policy.state_dict())
    except RuntimeError as error:
        raise PolicyError(
            f"its state cannot be loaded: {error}",
            where=case.kind,
            remedy="Build the same parameters and buffers from the same options",
        ) from error
    arguments = case.tokens, case.valid, case.uniforms
    case.require(
        torch.equal(other.sample(*arguments).selection, case.policy.sample(*arguments).selection)
        and torch.equal(
            other.threshold(case.tokens, case.valid), case.policy.threshold(case.tokens, case.valid)
        ),
        "it selects other tokens after saving and loading",
        "Keep what it learns, or draws when it is built, in parameters or persistent buffers",
    )


def _check_threshold(case: Case) -> None:
    """The test-time selection."""
    name, policy = "threshold", case.policy
    chosen = case.twice(name, lambda: policy.threshold(case.tokens, case.valid))
    case.selection(name, chosen, len(case.valid))
    chance = policy.probabilities(case.tokens, case.valid).detach()
    case.shape("probabilities", chance, *chosen.shape)
    case.unit("probabilities", chance)


def _check_sample(case: Case) -> None:
    """Sampled selections."""
    policy, kept = case.policy, case.tokens.clone()
    chosen = case.twice(
        "sample", lambda: policy.sample(case.tokens, case.valid, case.uniforms).selection
    )
    case.selection("sample's selection", chosen, *case.uniforms.shape[:2])
    case.require(torch.equal(kept, case.tokens), "sample changed its arguments", "Work on a copy")
    heads, dependents = chosen.unbind(2)
    case.require(
        bits_per_token(policy) == ROLES or torch.equal(heads, dependents),
        f"bits_per_token is {bits_per_token(policy)}, but the heads that sample selects differ from"
        " the dependents",
        f"Drop the attribute, or make it {ROLES}",
    )


def _check_log_prob(case: Case) -> None:
    """Log-probs of sampled selections, from `sample` and from `evaluate`, and their gradient."""
    drawn = case.policy.sample(case.tokens, case.valid, case.uniforms)
    evaluated = case.policy.evaluate(case.tokens, case.valid, drawn.selection)
    case.shape("evaluate's entropy", evaluated.entropy, len(case.valid))
    for name, value in (("sample", drawn.log_prob), ("evaluate", evaluated.log_prob)):
        case.shape(f"{name}'s log_prob", value, *case.uniforms.shape)
        case.zero_on_padding(f"{name}'s log_prob", value.detach())
        case.require(
            torch.isfinite(value).all() and value.max() <= 1e-6,
            f"{name}'s log_prob of a sampled selection is not finite or above 0",
            "Compute it with logsigmoid of the logits",
        )
    case.require(
        torch.allclose(drawn.log_prob, evaluated.log_prob, atol=1e-5),
        "evaluate's log_prob differs from that of sample",
        "Both must be log p of the same bits: the learner compares them",
    )
    if list(case.policy.parameters()) and not isinstance(case.policy, CertainPolicy):
        # Separately, because at entropy cost 0 the entropy gets no gradient.
        total = evaluated.log_prob.square().sum()
        case.gradient("evaluate's log_prob", total)
        case.gradient("evaluate's log_prob and entropy", total + evaluated.entropy.sum())


def _check_logits(case: Case) -> None:
    """A factorised policy's bits are those of its logits."""
    policy: Any = case.policy
    logits = policy.logits(case.tokens, case.valid)
    roles = logits.shape[1] if logits.ndim == 3 else 0
    case.require(roles in (1, 2), "logits are not [B, R, N] with R of 1 or 2", "See logits")
    case.shape("logits", logits, len(case.valid), roles, case.valid.shape[1])
    chance = torch.sigmoid(logits.detach())
    bits = (case.uniforms[:, :, :roles] < chance) & case.valid[:, None]
    drawn = policy.sample(case.tokens, case.valid, case.uniforms).selection
    case.require(
        torch.equal(drawn, bits.expand(-1, -1, ROLES, -1)),
        "sample does not draw uniform < sigmoid(logit)",
        "Estimators of single bits rely on it; without `logits` they are not offered",
    )


def _check_gates(case: Case) -> None:
    """A relaxed policy's gates are nonzero exactly where its sampled selection is True."""
    policy: Any = case.policy
    gates = case.twice("gates", lambda: policy.gates(case.tokens, case.valid, case.uniforms))
    case.shape("gates", gates, *case.uniforms.shape)
    case.unit("gates", gates.detach())
    drawn = policy.sample(case.tokens, case.valid, case.uniforms).selection
    case.require(
        torch.equal(gates > 0, drawn),
        "the nonzero gates are not the selection that sample draws",
        "A gate of exactly 0 is a token that is not selected",
    )
    if list(case.policy.parameters()):
        weights = torch.linspace(1, 2, gates.numel()).view_as(gates)
        case.gradient("gates", (gates * weights).sum())
        chance = policy.probabilities(case.tokens, case.valid)
        case.gradient("probabilities", (chance * weights[0]).sum())


def _check_alone(case: Case) -> None:
    """A sentence gets the same selection alone and in a padded batch; numbers up to rounding."""
    policy: Any = case.policy
    calls: dict[str, Callable[..., Tensor]] = {
        "threshold": lambda tokens, valid, _: policy.threshold(tokens, valid)[None],
        "sample": lambda *arguments: policy.sample(*arguments).selection,
        "probabilities": lambda tokens, valid, _: policy.probabilities(tokens, valid)[None],
    }
    if isinstance(policy, RelaxedPolicy):
        calls["gates"] = policy.gates
    for name, call in calls.items():
        whole = call(case.tokens, case.valid, case.uniforms)  # [K or 1, B, 2, N]
        for row, length in enumerate(case.lengths):
            one = slice(row, row + 1)
            drawn = case.uniforms[:, one, :, :length]
            lonely = call(case.tokens[one, :length], case.valid[one, :length], drawn)
            together = whole[:, one, :, :length]
            depends = "depends" if lonely.dtype == torch.bool else "depend"
            case.require(
                lonely.shape == together.shape
                and torch.allclose(lonely.float(), together.float(), atol=1e-4),
                f"{name} of a sentence of {length} tokens {depends} on the padding around it",
                "Use real tokens only: mask sums, means, maxima and recurrences",
            )


def _check_pickled(case: Case) -> None:
    """A pickled copy samples the same selections."""
    copy = case.pickled(case.policy)
    arguments = case.tokens, case.valid, case.uniforms
    case.require(
        torch.equal(copy.sample(*arguments).selection, case.policy.sample(*arguments).selection),
        "its pickled copy draws other selections",
        "Keep what it needs in parameters, buffers and attributes",
    )


def _check_frequency(case: Case) -> None:
    """exp(log_prob) of each sampled selection is its relative frequency."""
    uniforms = case.draw(_FREQUENCY_DRAWS, seed=11)
    with torch.no_grad():
        drawn = case.policy.sample(case.tokens, case.valid, uniforms)
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
            f"the log-prob of a selection does not match its frequency: {worst:.1f} standard errors"
            f" apart in {_FREQUENCY_DRAWS} draws",
            "log_prob must be that of the bits as `uniforms` decide them; a bit shared by both"
            " roles counts once",
        )
