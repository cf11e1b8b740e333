"""Every built-in policy keeps the contract, and each planted fault is found and named."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
import small
import torch
from torch import Tensor, nn

from rss_rl.components import Component, component_names, find_component
from rss_rl.errors import ComponentError, ConfigError
from rss_rl.policies.distributions import (
    Certain,
    Evaluated,
    IndependentBits,
    Sampled,
    SelectionDistribution,
)
from rss_rl.policies.policy import PolicyInputs
from rss_rl.testing import check_policy

VARIANTS: dict[str, dict[str, Any]] = {
    "rss shared": {"shared": True},
    "rss over gru": {"context": "gru"},
    "rss over conv": {"context": "conv", "pool": "none"},
    "rss, even shares": {"options": {"even": True}},
    "hardkuma shared": {"name": "hardkuma", "shared": True},
    "top-k share": {"name": "top-k", "shared": True, "options": {"share": 0.4}},
    "smooth within sentences": {"name": "smooth", "within": "sentence"},
}


@pytest.mark.parametrize("name", component_names("policy"))
def test_built_in_components_keep_the_contract(name: str) -> None:
    options = {"share": 0.4} if name == "top-k" else {}
    check_policy(find_component("policy", name), small.EMBEDDING, options)


@pytest.mark.parametrize("settings", VARIANTS.values(), ids=VARIANTS)
def test_their_options_keep_the_contract(settings: dict[str, Any]) -> None:
    check_policy(small.policy(double=False, **settings), small.EMBEDDING)


def test_one_bit_for_roles_that_differ_is_found() -> None:
    policy = small.policy(double=False)
    policy.bits_per_token = 1
    with pytest.raises(ComponentError, match="heads that sample selects differ"):
        check_policy(policy, small.EMBEDDING)


class Replaced(SelectionDistribution):
    """One of which what one method returns is replaced."""

    has_rsample = True

    def __init__(
        self, right: IndependentBits, shown: Tensor, replaced: Mapping[str, Callable[..., Any]]
    ) -> None:
        self._right, self._shown, self._replaced = right, shown, replaced

    def _call(self, name: str, *arguments: Tensor) -> Any:
        right = getattr(self._right, name)
        found = right(*arguments) if arguments else right
        instead = self._replaced.get(name)
        return instead(found, self._shown, self._right.valid, *arguments) if instead else found

    @property
    def probs(self) -> Tensor:
        return self._call("probs")  # type: ignore[no-any-return]

    @property
    def mode(self) -> Tensor:
        return self._call("mode")  # type: ignore[no-any-return]

    @property
    def steered(self) -> Tensor:
        return self._right.probs

    def sample(self, uniforms: Tensor) -> Sampled:
        return self._call("sample", uniforms)  # type: ignore[no-any-return]

    def evaluate(self, selection: Tensor) -> Evaluated:
        return self._call("evaluate", selection)  # type: ignore[no-any-return]

    def rsample(self, uniforms: Tensor) -> Tensor:
        return self._call("rsample", uniforms)  # type: ignore[no-any-return]


class Faulty(nn.Module):
    """An RSS policy that returns such a distribution."""

    def __init__(self, **replaced: Callable[..., Any]) -> None:
        super().__init__()
        self.inner = small.policy(double=False)
        self._replaced = replaced

    def forward(self, inputs: PolicyInputs) -> SelectionDistribution:
        return Replaced(self.inner(inputs), inputs.vectors, self._replaced)  # type: ignore[arg-type]


def padded_mean(right: Tensor, shown: Tensor, valid: Tensor) -> Tensor:
    """The fault: a token is compared with how long the padded sentence is."""
    score = shown.sum(-1) - 0.5 * valid.shape[1]
    return (score > 0)[:, None].expand(-1, 2, -1) & valid[:, None]


def selects_padding(right: Sampled, *_: Tensor) -> Sampled:
    return Sampled(torch.ones_like(right.selection), right.log_prob)


def random_bits(right: Sampled, shown: Tensor, valid: Tensor, uniforms: Tensor) -> Sampled:
    return Sampled((torch.rand_like(uniforms) < 0.5) & valid[:, None], right.log_prob)


def half(right: Sampled, *_: Tensor) -> Sampled:
    return Sampled(right.selection, right.log_prob / 2)


def half_of_both(right: Any, *_: Tensor) -> Any:
    return right._replace(log_prob=right.log_prob / 2)


FAULTS: dict[str, tuple[str, Callable[..., Any], str]] = {
    "padding": ("sample", selects_padding, "sample on padding is not 0"),
    "own randomness": ("sample", random_bits, "differs between two calls"),
    "half the log-prob": ("sample", half, "log_prob differs from that of sample"),
    "one role": ("mode", lambda right, *_: right[:, 0], "has the shape"),
    "padded mean": ("mode", padded_mean, "depends on the padding"),
    "padded gates": (
        "rsample",
        lambda right, *_: right / (1 + 0.1 * right.shape[-1]),
        "rsample .* depends on the padding",
    ),
    "detached": (
        "evaluate",
        lambda right, *_: Evaluated(right.log_prob.detach(), right.entropy.detach()),
        "no gradient",
    ),
}


@pytest.mark.parametrize(("method", "instead", "message"), FAULTS.values(), ids=FAULTS)
def test_a_planted_fault_is_found_and_named(
    method: str, instead: Callable[..., Any], message: str
) -> None:
    with pytest.raises(ComponentError, match=message) as caught:
        check_policy(Faulty(**{method: instead}), small.EMBEDDING)
    assert caught.value.where == "Faulty"
    assert caught.value.remedy


def nothing_compared(right: Any, shown: Tensor, *_: Tensor) -> Any:
    """The fault: it looks for the longest of no sentences."""
    return right if len(shown) else shown.flatten(1).max(0) and right


def test_a_fault_on_nothing_is_found() -> None:
    with pytest.raises(ComponentError, match="a batch without a sentence: max"):
        check_policy(Faulty(evaluate=nothing_compared), small.EMBEDDING)


def test_a_log_prob_that_agrees_with_itself_alone_is_found() -> None:
    with pytest.raises(ComponentError, match="frequency"):
        check_policy(Faulty(sample=half, evaluate=half_of_both), small.EMBEDDING)


class Unready(nn.Module):
    def forward(self, inputs: PolicyInputs) -> Tensor:
        return inputs.vectors


def test_what_is_no_policy_is_refused() -> None:
    with pytest.raises(ConfigError, match="returns Tensor, not a SelectionDistribution"):
        check_policy(Unready(), small.EMBEDDING)
    with pytest.raises(ConfigError, match="not a torch module"):
        check_policy(object(), small.EMBEDDING)  # type: ignore[arg-type]


class LastScore(nn.Module):
    """Deterministic, with parameters that were learnt elsewhere."""

    def __init__(self) -> None:
        super().__init__()
        self.score = nn.Linear(small.EMBEDDING, 1)

    def forward(self, inputs: PolicyInputs) -> Certain:
        kept = self.score(inputs.features).squeeze(-1) > 0
        return Certain(kept[:, None].expand(-1, 2, -1), inputs.valid)


def test_a_deterministic_policy_may_have_parameters() -> None:
    check_policy(LastScore(), small.EMBEDDING)


class Scorer(nn.Module):
    """Independent bits, without gates."""

    def __init__(self, features: int, roles: int = 2, drop: float = 0.0) -> None:
        super().__init__()
        self.score = nn.Linear(features, roles)
        self.dropout = nn.Dropout(drop)

    def forward(self, inputs: PolicyInputs) -> SelectionDistribution:
        scores = self.score(self.dropout(inputs.features))
        return IndependentBits(scores.transpose(1, 2), inputs.valid)


def component(
    build: Callable[..., Any] = lambda setup, options: Scorer(setup.features),
    *capabilities: str,
) -> Component:
    return Component(
        kind="policy",
        name="mine",
        help="A policy of one's own.",
        build=build,
        capabilities=frozenset(capabilities or ("learns", "log_probs", "share")),
    )


@pytest.mark.parametrize("roles", [1, 2])
def test_logits_are_enough(roles: int) -> None:
    check_policy(Scorer(small.EMBEDDING, roles), small.EMBEDDING)
    check_policy(component(lambda setup, options: Scorer(setup.features, roles)), small.EMBEDDING)


@pytest.mark.parametrize(
    ("capabilities", "message"),
    [
        (("learns", "log_probs", "gates"), "lacks what the capability gates is for"),
        (("learns",), "has what the capability log_probs is for, .* does not declare"),
    ],
)
def test_what_is_declared_is_what_there_is(capabilities: tuple[str, ...], message: str) -> None:
    declared = component(lambda setup, options: Scorer(setup.features), *capabilities)
    with pytest.raises(ConfigError, match=message):
        check_policy(declared, small.EMBEDDING)


class Normalised(Scorer):
    def __init__(self) -> None:
        super().__init__(small.EMBEDDING)
        self.norm = nn.BatchNorm1d(small.EMBEDDING)

    def forward(self, inputs: PolicyInputs) -> SelectionDistribution:
        vectors = inputs.vectors
        if vectors.numel():
            vectors = self.norm(vectors.transpose(1, 2)).transpose(1, 2)
        return super().forward(inputs._replace(vectors=vectors))


def test_statistics_that_samplers_never_see_are_found() -> None:
    with pytest.raises(ComponentError, match="a buffer changes in training mode"):
        check_policy(Normalised(), small.EMBEDDING)


class Projected(Scorer):
    def __init__(self, features: int) -> None:
        super().__init__(features)
        self.projection = torch.randn(features, features)  # the fault: no buffer

    def forward(self, inputs: PolicyInputs) -> SelectionDistribution:
        return super().forward(inputs._replace(vectors=inputs.vectors @ self.projection))


def test_what_is_drawn_when_built_and_not_saved_is_found() -> None:
    with pytest.raises(ComponentError, match="newly built copy with its state"):
        check_policy(component(lambda setup, options: Projected(setup.features)), small.EMBEDDING)


def test_dropout_acts_while_learning_alone() -> None:
    policy = Scorer(small.EMBEDDING, drop=0.5)
    check_policy(policy, small.EMBEDDING)
    assert policy.training
